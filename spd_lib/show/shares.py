"""Two shares of the same whole, piece by piece: what a part weighs beside what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from .figures import BookFigure, NumberTable, chart_layout, chart_marker


def share_bars(
    pieces: Sequence[str], shares: dict[str, Sequence[float]], unit: str = "share of the whole"
) -> BookFigure:
    """For each of ``pieces`` two bars side by side: its part of each of the two totals in ``shares`` (name → values).

    Values may be in any unit; each series is divided by its sum.
    """
    import plotly.graph_objects as go

    if len(shares) != 2 or any(len(values) != len(pieces) for values in shares.values()):
        raise ValueError(f"share_bars needs two series of {len(pieces)} values")
    parts = {name: [value / sum(values) for value in values] for name, values in shares.items()}
    fig = go.Figure()
    for (name, values), look in zip(parts.items(), ("in-flight", "corrected"), strict=True):
        fig.add_bar(
            x=list(pieces),
            y=[round(100 * value, 2) for value in values],
            name=name,
            marker=chart_marker(look),
            hovertemplate=f"%{{x}}: %{{y:.1f}} % of the {name}<extra></extra>",
        )
    fig.update_layout(
        chart_layout(
            340,
            barmode="group",
            xaxis={},
            yaxis={"title": {"text": "share of the whole, %"}, "rangemode": "tozero"},
        )
    )
    names = list(parts)
    rows = [[piece, *(f"{100 * parts[name][index]:.1f} %" for name in names)] for index, piece in enumerate(pieces)]
    told = "; ".join(f"{row[0]}: {row[1]} of the {names[0]}, {row[2]} of the {names[1]}" for row in rows)
    return BookFigure(fig, f"{told}.", NumberTable(["piece", *names], rows))
