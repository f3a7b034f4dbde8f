"""Charts for the book: drawn by Plotly in a page that has it, told in words and numbers everywhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from spd_lib.core.metrics import expected_speedup
from spd_lib.core.plan import Plan

from .palette import HATCHES, style

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class NumberTable:
    """The numbers behind a chart: one heading a column, rows of the same length."""

    headings: Sequence[str]
    rows: Sequence[Sequence[object]]

    def html(self) -> str:
        """The table as HTML."""
        heads = "".join(f'<th scope="col">{escape(str(heading))}</th>' for heading in self.headings)
        rows = "".join("<tr>" + "".join(f"<td>{escape(str(x))}</td>" for x in row) + "</tr>" for row in self.rows)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


@dataclass(frozen=True)
class BookFigure:
    """A Plotly figure with ``alt``, the words that say what it shows, and the numbers behind it.

    In the book the page's script draws it in the colours of the theme; a live notebook gets Plotly's own format.
    """

    fig: Figure
    alt: str
    table: NumberTable | None = None

    def html(self) -> str:
        """A ``<figure class="bk-plot">`` with the specification inside."""
        spec = self.fig.to_json().replace("<", "\\u003c")
        height = self.fig.layout.height
        room = f' style="min-height:{height:g}px"' if height else ""  # so that the page does not jump when it is drawn
        numbers = f"<details><summary>The numbers</summary>{self.table.html()}</details>" if self.table else ""
        return (
            f'<figure class="bk-plot"><div class="bk-plot-target"{room}></div>'
            f'<script type="application/json">{spec}</script>'
            f"<figcaption>{escape(self.alt)}</figcaption>{numbers}</figure>"
        )

    def __str__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {
            "text/html": self.html(),
            "text/plain": self.alt,
            "application/vnd.plotly.v1+json": json.loads(self.fig.to_json()),
        }


def chart_layout(height: int, **changes: Any) -> dict[str, Any]:
    """What all charts share: no template, small margins, a legend above, no zooming by accident on a phone."""
    axis = {"fixedrange": True, "automargin": True}
    layout: dict[str, Any] = {
        "template": None,
        "height": height,
        "margin": {"l": 10, "r": 10, "t": 30, "b": 10},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    for name, value in changes.items():
        layout[name] = {**axis, **value} if name in ("xaxis", "yaxis") else value
    return layout


def chart_marker(name: str, hatch: str | None = None) -> dict[str, Any]:
    """A bar in a palette colour with its hatch, or with another one."""
    look = style(name)
    shape = HATCHES[hatch or look.hatch][1]
    return {
        "color": look.chart,
        "line": {"color": "#ffffff", "width": 1.5},
        "pattern": {"shape": shape, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55, "solidity": 0.25},
    }


def _named(look: str, name: str) -> dict[str, Any]:
    """A named bar in the style ``look``; bars of one name hide together."""
    hover = f"{name}: %{{y:.3f}}<extra></extra>"
    return {"marker": chart_marker(look), "name": name, "legendgroup": name, "hovertemplate": hover}


def plan_bar(plans: Sequence[Plan], head_cost: float) -> BookFigure:
    """The layer ruler under each plan: one piece a stage, the head behind the last one, the slowest stage marked.

    ``head_cost`` is in layer units. Prints n_eff = (L + head) ÷ slowest stage, the most that the plan can gain.
    """
    import plotly.graph_objects as go

    names = [f"{plan.name}, n = {plan.num_stages}<br>n_eff = {plan.effective_stages(head_cost):.2f}" for plan in plans]
    fig = go.Figure()
    for stage in range(max(plan.num_stages for plan in plans)):
        own = {name: plan for name, plan in zip(names, plans, strict=True) if stage < plan.num_stages}
        fig.add_bar(
            orientation="h",
            y=list(own),
            x=[plan.counts[stage] for plan in own.values()],
            **_stage_look([(plan.counts[stage], _is_slowest(plan, stage, head_cost)) for plan in own.values()]),
            hovertemplate=f"stage {stage}: %{{x}} layers<extra></extra>",
            showlegend=False,
        )
    fig.add_bar(
        orientation="h",
        y=names,
        x=[head_cost] * len(plans),
        text=["<b>◂</b>" if _is_slowest(plan, plan.num_stages - 1, head_cost) else "" for plan in plans],
        textposition="inside",
        insidetextanchor="start",
        insidetextfont={"color": "#ffffff"},
        marker=chart_marker("judged", "diagonal"),
        name="norm + head, done by the last stage",
        hovertemplate=f"norm + head: {head_cost:g} layers' time<extra></extra>",
    )
    fig.update_layout(
        chart_layout(
            110 + 56 * len(plans),
            barmode="stack",
            xaxis={"title": {"text": "time, in layers (◂ the slowest stage)"}},
            yaxis={"autorange": "reversed", "showgrid": False},
        )
    )
    rows = [
        [plan.name, plan.num_stages, " ".join(map(str, plan.counts)), f"{plan.cycle_cost(head_cost):g}",
         f"{plan.effective_stages(head_cost):.2f}"]
        for plan in plans
    ]  # fmt: skip
    told = "; ".join(f"{row[0]} with n = {row[1]}: layers {row[2]}, n_eff = {row[4]}" for row in rows)
    alt = f"Layers per stage, the head costs {head_cost:g} layers. {told}."
    return BookFigure(fig, alt, NumberTable(["plan", "n", "layers per stage", "cycle, in layers", "n_eff"], rows))


def _is_slowest(plan: Plan, stage: int, head_cost: float) -> bool:
    """Whether the cycle waits for ``stage``; the last one does the head too."""
    head = head_cost if stage == plan.num_stages - 1 else 0
    return plan.counts[stage] + head == plan.cycle_cost(head_cost)


def _stage_look(pieces: Sequence[tuple[int, bool]]) -> dict[str, Any]:
    """Labels and colours of bars given as (layers, slowest): the slowest are darker, bold and have a mark."""
    return {
        "text": [f"<b>{layers} ◂</b>" if slowest else str(layers or "") for layers, slowest in pieces],
        "textposition": "inside",
        "textangle": 0,
        "insidetextanchor": "middle",
        "insidetextfont": {"color": "#ffffff"},
        "marker": {
            "color": [style("committed" if slowest else "in-flight").chart for _, slowest in pieces],
            "line": {"color": "#ffffff", "width": 2},
        },
    }


def speedup_curve(acceptances: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9), max_stages: int = 32) -> BookFigure:
    """S(n) = 1 / ((1 − p) + p/n) for several acceptance rates p, each with the ceiling 1/(1 − p) in its label."""
    import plotly.graph_objects as go

    stages = list(range(1, max_stages + 1))
    dashes = ("solid", "dash", "dot", "dashdot", "longdash")
    fig = go.Figure()
    for place, p in enumerate(acceptances):
        curve = [expected_speedup(p, n) for n in stages]
        ceiling = f", at most {1 / (1 - p):.3g}" if p < 1 else ""
        fig.add_scatter(
            x=stages,
            y=[round(s, 3) for s in curve],
            mode="lines+text",
            text=[""] * (max_stages - 1) + [f"p = {p:g}{ceiling}"],
            textposition="top left",
            line={"color": style("committed").chart, "width": 2.5, "dash": dashes[place % len(dashes)]},
            name=f"p = {p:g}",
            hovertemplate=f"S(%{{x}}) = 1 / ((1 − {p:g}) + {p:g}/%{{x}}) = %{{y:.2f}}<extra></extra>",
            showlegend=False,
        )
    fig.update_layout(
        chart_layout(
            400,
            xaxis={"title": {"text": "stages n"}, "range": [0, max_stages + 1]},
            yaxis={"title": {"text": "speedup S(n)"}, "rangemode": "tozero"},
        )
    )
    columns = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= max_stages]
    rows = [[f"{p:g}", *(f"{expected_speedup(p, n):.2f}" for n in columns)] for p in acceptances]
    told = "; ".join(f"p = {row[0]}: {row[-1]}" for row in rows)
    alt = (
        "Theoretical speedup S(n) = 1 / ((1 − p) + p/n) over the number of stages n, one curve for each acceptance "
        f"rate p; every curve rises and flattens. At n = {columns[-1]}: {told}."
    )
    return BookFigure(fig, alt, NumberTable(["p", *(f"n = {n}" for n in columns)], rows))


def distribution_bars(
    p: Sequence[float], q: Sequence[float], residual: Sequence[float], labels: Sequence[str] | None = None
) -> BookFigure:
    """Target P and draft Q side by side, cut into what they share, what is rejected and what the residual supplies.

    All three have one entry a token; ``labels`` names the tokens (their ids if not given). ``residual`` is the
    normalised max(P − Q, 0).
    """
    import plotly.graph_objects as go

    names = [str(index) for index in range(len(p))] if labels is None else list(labels)
    if not len(p) == len(q) == len(residual) == len(names):
        raise ValueError(
            f"lengths differ: {len(p)} in p, {len(q)} in q, {len(residual)} in residual, {len(names)} labels"
        )
    both = [min(a, b) for a, b in zip(p, q, strict=True)]
    places = list(range(len(p)))
    fig = go.Figure()

    zero = [0.0] * len(p)
    for values, base, left, look, name in (
        (both, zero, -0.38, "committed", "min(P, Q): accepted"),
        ([a - c for a, c in zip(p, both, strict=True)], both, -0.38, "corrected", "P − Q: owed by the residual"),
        (both, zero, 0.02, "committed", "min(P, Q): accepted"),
        ([b - c for b, c in zip(q, both, strict=True)], both, 0.02, "rejected", "Q − P: rejected"),
    ):
        known = any(trace.name == name for trace in fig.data)
        fig.add_bar(x=places, y=values, base=base, offset=left, width=0.36, **_named(look, name), showlegend=not known)
    fig.add_scatter(
        x=places, y=list(residual), mode="markers", name="residual, normalised",
        marker={"symbol": "diamond-open", "size": 12, "line": {"width": 2.5}, "color": style("corrected").chart},
        hovertemplate="residual: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    fig.update_layout(
        chart_layout(
            420,
            barmode="overlay",
            xaxis={"title": {"text": "token (left bar P, right bar Q)"}, "tickvals": places, "ticktext": names},
            yaxis={"title": {"text": "probability"}, "rangemode": "tozero"},
        )
    )
    rows = [
        [name, *(f"{value:.3f}" for value in values)] for name, *values in zip(names, p, q, both, residual, strict=True)
    ]
    alt = (
        f"Target distribution P and draft distribution Q over {len(p)} tokens. They share {sum(both):.3f}: so "
        f"likely is a draft to be accepted. The rejected {1 - sum(both):.3f} is drawn anew from the residual."
    )
    return BookFigure(fig, alt, NumberTable(["token", "P", "Q", "min(P, Q)", "residual"], rows))
