"""Charts of how often a drafter is right, from the results of `python -m spd_lib acceptance` and from training logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spd_lib.core.metrics import judged_by_fill

from .figures import BookFigure, NumberTable, chart_layout, chart_marker
from .palette import style

FEW_JUDGED = 50  # a share of fewer drafts says nothing


def acceptance_bars(result: Mapping[str, Any]) -> BookFigure:
    """Acceptance by number of stages with 95 % intervals, prompt lookup and the ceiling of the vocabulary as lines."""
    import plotly.graph_objects as go

    rows = result["stages"]
    names = [str(row["n"]) for row in rows]
    values = [row["acceptance"] for row in rows]
    fig = go.Figure()
    fig.add_bar(
        x=names,
        y=values,
        marker=chart_marker("committed"),
        name="draft module",
        error_y=_interval_marks(rows),
        hovertemplate="n = %{x}: %{y:.3f}<extra></extra>",
    )
    lookup = result["prompt_lookup"]["acceptance"]
    levels = (("ceiling of the draft vocabulary", result["ceiling"], "dot"), ("prompt lookup", lookup, "dash"))
    for name, level, dash in levels:
        fig.add_scatter(
            x=names,
            y=[level] * len(names),
            mode="lines",
            name=name,
            line={"color": style("corrected").chart, "dash": dash, "width": 2.5},
            hovertemplate=f"{name}: %{{y:.3f}}<extra></extra>",
        )
    fig.update_layout(
        chart_layout(
            380,
            xaxis={"title": {"text": "stages n"}, "type": "category"},
            yaxis={"title": {"text": "acceptance rate"}, "range": [0, 1]},
        )
    )
    table = [
        [row["n"], f"{row['acceptance']:.3f}", f"{row['interval'][0]:.3f} … {row['interval'][1]:.3f}",
         f"{row['raw']:.3f}", f"{row['agreement'][str(row['n'])]:.3f}"]
        for row in rows
    ]  # fmt: skip
    told = ", ".join(f"{row[1]} at n = {row[0]}" for row in table)
    alt = f"Acceptance: {told}. Prompt lookup on the same tokens: {lookup:.3f}. Ceiling: {result['ceiling']:.3f}."
    headings = ["n", "acceptance", "95 % interval", "all tokens", "agreement, full pipe"]
    return BookFigure(fig, alt, NumberTable(headings, table))


def _interval_marks(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Plotly's error bars for rows with an ``acceptance`` and its ``interval``."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [row["interval"][1] - row["acceptance"] for row in rows],
        "arrayminus": [row["acceptance"] - row["interval"][0] for row in rows],
        "color": style("judged").chart,
    }


def _with_interval(row: Mapping[str, Any]) -> str:
    """The ``acceptance`` of a row and its ``interval``."""
    low, high = row["interval"]
    return f"{row['acceptance']:.3f} ({low:.3f} … {high:.3f})"


def history_curves(result: Mapping[str, Any], num_stages: int) -> BookFigure:
    """Acceptance by tokens of earlier turns, from `tests.bench.context`: with the trained window and with every row."""
    import plotly.graph_objects as go

    lengths = [entry["history"] for entry in result["histories"]]
    curves = {
        name: [entry[name][str(num_stages)] for entry in result["histories"]]
        for name in ("trained window", "every row")
    }
    fig = go.Figure()
    for (name, rows), dash in zip(curves.items(), ("solid", "dash"), strict=True):
        fig.add_scatter(
            x=lengths,
            y=[row["acceptance"] for row in rows],
            mode="lines+markers",
            line={"color": style("committed").chart, "dash": dash, "width": 2.5},
            error_y=_interval_marks(rows),
            name=name,
            hovertemplate=f"{name}, %{{x}} tokens before: %{{y:.3f}}<extra></extra>",
        )
    fig.update_layout(
        chart_layout(
            340,
            xaxis={"title": {"text": "tokens of earlier turns"}, "type": "log", "tickvals": lengths},
            yaxis={"title": {"text": f"acceptance rate, n = {num_stages}"}, "range": [0, 1]},
        )
    )
    told = {name: [_with_interval(row) for row in rows] for name, rows in curves.items()}
    table = [[f"{length:,}", *pair] for length, *pair in zip(lengths, *told.values(), strict=True)]
    first, last = lengths[0], lengths[-1]
    ends = "; ".join(
        f"{name}: {rows[0]['acceptance']:.3f} after {first:,} tokens, {rows[-1]['acceptance']:.3f} after {last:,}"
        for name, rows in curves.items()
    )
    return BookFigure(fig, f"Acceptance in long chats. {ends}.", NumberTable(["earlier tokens", *curves], table))


def fill_curves(result: Mapping[str, Any], stages: Sequence[int]) -> BookFigure:
    """Agreement by tokens in flight, a curve for each n; for the largest n also acceptance, with 95 % intervals."""
    import plotly.graph_objects as go

    rows = {row["n"]: row for row in result["stages"] if row["n"] in stages}
    dashes = ("solid", "dash", "dot", "dashdot")
    fig = go.Figure()
    for dash, (n, row) in zip(dashes, rows.items(), strict=False):
        fig.add_scatter(
            x=[int(fill) for fill in row["agreement"]],
            y=list(row["agreement"].values()),
            mode="lines+markers",
            line={"color": style("committed").chart, "dash": dash, "width": 2.5},
            name=f"agreement, n = {n}",
            hovertemplate=f"n = {n}, %{{x}} in flight: %{{y:.3f}}<extra></extra>",
        )
    last = rows[max(rows)]
    enough = {fill: entry for fill, entry in last["by_fill"].items() if entry["judged"] >= FEW_JUDGED}
    fig.add_scatter(
        x=[int(fill) for fill in enough],
        y=[entry["acceptance"] for entry in enough.values()],
        mode="markers",
        marker={"color": style("judged").chart, "size": 9, "symbol": "diamond"},
        error_y=_interval_marks(list(enough.values())),
        name=f"acceptance, n = {max(rows)}, 95 % interval",
        hovertemplate="%{x} in flight: %{y:.3f} of the judged drafts<extra></extra>",
    )
    fig.update_layout(
        chart_layout(
            380,
            xaxis={"title": {"text": "tokens in flight when the draft was made"}},
            yaxis={"title": {"text": "share of drafts that are right"}, "range": [0, 1]},
        )
    )
    judged = sum(entry["judged"] for entry in last["by_fill"].values())
    table = [
        [fill, *(f"{row['agreement'][fill]:.3f}" if fill in row["agreement"] else "" for row in rows.values()),
         _with_interval(enough[fill]) if fill in enough else "",
         f"{100 * last['by_fill'][fill]['judged'] / judged:.1f} %"]
        for fill in last["agreement"]
    ]  # fmt: skip
    curves = "; ".join(
        f"n = {n}: {row['agreement']['1']:.3f} with one token in flight, {row['agreement'][str(n)]:.3f} in a full pipe"
        for n, row in rows.items()
    )
    alt = (
        f"Agreement by tokens in flight. {curves}. Diamonds: acceptance at n = {max(rows)}, with 95 % intervals, where "
        f"at least {FEW_JUDGED} drafts were judged."
    )
    headings = ["in flight", *(f"n = {n}" for n in rows), "accepted (95 % interval)", f"judged, n = {max(rows)}"]
    return BookFigure(fig, alt, NumberTable(headings, table))


def judged_shares(acceptance: float, num_stages: int) -> BookFigure:
    """Share of all judged drafts that were made at each fill, if each draft is right with the same probability."""
    import plotly.graph_objects as go

    shares = judged_by_fill([acceptance] * num_stages)
    fills = list(range(1, num_stages + 1))
    fig = go.Figure()
    fig.add_bar(
        x=fills,
        y=[round(100 * share, 2) for share in shares],
        marker=chart_marker("in-flight"),
        hovertemplate="%{x} in flight: %{y:.1f} %<extra></extra>",
    )
    fig.update_layout(
        chart_layout(
            320,
            xaxis={"title": {"text": "tokens in flight when the draft was made"}, "tickvals": fills},
            yaxis={"title": {"text": "share of judged drafts, %"}, "rangemode": "tozero"},
            showlegend=False,
        )
    )
    few = sum(shares[:5])
    alt = (
        f"With acceptance {acceptance:g} and n = {num_stages}, {100 * few:.0f} % of the judged drafts were made with "
        f"at most five tokens in flight, {100 * shares[-1]:.1f} % with a full pipe."
    )
    rows = [[fill, f"{100 * share:.1f} %"] for fill, share in zip(fills, shares, strict=True)]
    return BookFigure(fig, alt, NumberTable(["in flight", "share of judged drafts"], rows))


def training_curve(log: Sequence[Mapping[str, Any]]) -> BookFigure:
    """Loss and held-out acceptance over the tokens read in a training run, from its log."""
    import plotly.graph_objects as go

    read = [entry["tokens"] for entry in log]
    names = [name for name in log[-1] if name.startswith("n=")]
    fig = go.Figure()
    for dash, name in zip(("solid", "dash", "dot"), names, strict=False):
        fig.add_scatter(
            x=read,
            y=[entry[name]["acceptance"] for entry in log],
            mode="lines+markers",
            line={"color": style("committed").chart, "dash": dash, "width": 2.5},
            name=f"acceptance, {name.replace('=', ' = ')}",
        )
    fig.update_layout(
        chart_layout(
            340,
            xaxis={"title": {"text": "tokens read, repetitions included"}, "rangemode": "tozero"},
            yaxis={"title": {"text": "acceptance, held-out texts"}, "rangemode": "tozero"},
        )
    )
    rows = [[f"{e['tokens']:,}", f"{e['loss']:.3f}", *(f"{e[name]['acceptance']:.3f}" for name in names)] for e in log]
    best = rows[max(range(len(log)), key=lambda place: log[place][names[0]]["acceptance"])]
    alt = (
        f"Held-out acceptance at {names[0].replace('=', ' = ')}: {rows[0][2]} after {rows[0][0]} tokens, {rows[-1][2]} "
        f"after {rows[-1][0]}; the highest is {best[2]}, after {best[0]}."
    )
    return BookFigure(fig, alt, NumberTable(["tokens", "loss", *names], rows))
