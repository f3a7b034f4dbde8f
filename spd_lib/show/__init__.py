"""Everything the book shows: the palette, the pipe grid, charts, source listings, exercise checkers.

The names load on first use, so that ``import spd_lib.show`` costs nothing and needs neither torch nor Plotly.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "BookFigure": "figures",
    "acceptance_bars": "acceptances",
    "anchor_ruler": "anchors",
    "check_acceptance": "checks",
    "check_cycles": "checks",
    "check_kinds": "checks",
    "check_plan": "checks",
    "check_rejection": "checks",
    "check_standing": "checks",
    "css_text": "palette",
    "depth_strip": "depths",
    "distribution_bars": "figures",
    "fill_curves": "acceptances",
    "history_curves": "acceptances",
    "judged_shares": "acceptances",
    "layer_ruler": "ruler",
    "mask_explorer": "mask",
    "pipe_grid": "grid",
    "pipe_svg": "picture",
    "pipe_text": "table",
    "plan_bar": "figures",
    "running_example": "example",
    "share_bars": "shares",
    "source": "listing",
    "speedup_curve": "figures",
    "terminal": "palette",
    "training_curve": "acceptances",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
