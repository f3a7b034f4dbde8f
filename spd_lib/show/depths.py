"""The depth strip: what the drafter knows of each token when it drafts the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from spd_lib.core.plan import NAMED_PLANS, Plan, make_plan
from spd_lib.core.staircase import anchors_passed, depth_of

from .frames import Frames, Picture

COMPLETE = 2  # finished tokens to the left of those in flight
LABEL_HEIGHT = 8.5  # of a number beside the columns, in per cent of a column


def depth_strip(num_layers: int, anchors: Sequence[int], head_cost: float, stages: Sequence[int] = (2, 4, 8)) -> Frames:
    """What three methods know of each token when they draft the next one, for several n, both plans and every fill.

    Columns are tokens, the newest on the right; a column is filled up to the layer that its token has reached.
    ``head_cost``, in layers, is what the `balanced` plan counts for the head.
    """
    full = max(stages)
    controls = {
        "Method": ["SPD", "EAGLE-3", "PPSD"],
        "n": list(map(str, stages)),
        "plan": list(NAMED_PLANS),
        "in flight, or draft no.": [str(fill) for fill in range(1, full + 1)],
    }

    def picture(method: str, n: str, plan: str, step: str) -> Picture | None:
        if method == "EAGLE-3":
            return _eagle(num_layers, int(step))
        cut = make_plan(plan, num_layers, int(n), head_cost)
        if method == "PPSD":
            return _ppsd(cut, anchors)
        return _spd(cut, anchors, int(step)) if int(step) <= int(n) else None  # a pipe of n stages holds n tokens

    hint = (
        "SPD, n = 4: raise the tokens in flight. The staircase grows until the pipe is full, then it only moves on. "
        "EAGLE-3: raise the number of the draft. What stands on guesses grows with every draft of the block."
    )
    start = ("SPD", str(stages[len(stages) // 2]), "even", str(stages[len(stages) // 2]))
    return Frames("What the drafter knows of each token", controls, picture, hint, start)


# --- the three methods


def _spd(plan: Plan, anchors: Sequence[int], fill: int) -> Picture:
    columns, told = [], []
    for distance in range(fill + COMPLETE - 1, -1, -1):
        layers = plan.layers_passed(depth_of(distance, 0, fill, plan.num_stages))
        dots = anchors[: anchors_passed(anchors, layers) + 1]
        look = "committed" if distance >= fill else "draft" if distance == 0 else "in-flight"
        columns.append(
            _column(plan.num_layers, _name(distance), f"{layers} layers" if layers else "embed", look, layers, dots)
        )
        if 0 < distance < fill:
            told.append(f"{_name(distance)}: {layers} layers, anchors up to {dots[-1]}")
    words = (
        f"SPD, n = {plan.num_stages}, {plan.name} plan, {fill} in flight, before the stages step. "
        f"{'; '.join([*told, 't: its embedding'])}. Older tokens are complete.{_alone(plan)}"
    )
    return Picture(_strip(plan.num_layers, anchors, columns, plan), words)


def _eagle(num_layers: int, number: int) -> Picture:
    taps = (2, num_layers // 2, num_layers - 3)  # a low, a middle and a high layer, as in its published code
    columns = [
        _column(num_layers, _name(number + more), "3 layers", "committed", num_layers, taps)
        for more in range(COMPLETE - 1, -1, -1)
    ]
    columns.append(_column(num_layers, _name(number - 1), "by target", "in-flight", 0, (0,)))
    for distance in range(number - 2, -1, -1):
        sign = "own state"
        columns.append(_column(num_layers, _name(distance), f"guess {number - 1 - distance}", "draft", 0, (0,), sign))
    guesses = ("no guess", "one guess of its own")[number - 1] if number < 3 else f"{number - 1} guesses of its own"
    words = (
        f"EAGLE-3, draft number {number} of a block. Of each finished token it reads a low, a middle and a high layer; "
        f"of the newest word that the target wrote, the embedding. This draft rests on {guesses}: where the target "
        "has not been yet, the drafter's own state takes the place of the features."
    )
    return Picture(_strip(num_layers, (0, *taps, num_layers), columns), words)


def _ppsd(plan: Plan, anchors: Sequence[int]) -> Picture:
    first = plan.layers_passed(1)
    columns = [
        _column(plan.num_layers, _name(distance), "not read", "idle", 0, ()) for distance in range(COMPLETE + 1, 0, -1)
    ]
    columns.append(_column(plan.num_layers, "t", f"{first} layers", "in-flight", first, (first,)))
    words = (
        f"PPSD, n = {plan.num_stages}, {plan.name} plan: the newest token after the first stage, {first} layers, "
        "however many are in flight. What older tokens have computed further up is not read. And the draft has to wait "
        f"for that stage: it comes after the step, and its time adds to the cycle.{_alone(plan)}"
    )
    return Picture(_strip(plan.num_layers, anchors, columns, plan), words)


def _alone(plan: Plan) -> str:
    """A sentence on a last stage without layers, which the columns cannot show."""
    return "" if plan.counts[-1] else f" Stage {plan.num_stages - 1} holds the head alone."


# --- drawing


def _name(distance: int) -> str:
    return "t" if distance == 0 else f"t−{distance}"


def _height(num_layers: int, layers: float) -> float:
    """Where ``layers`` is on a column, in per cent from below; the embedding is not quite at the bottom."""
    return 4 + 90 * layers / num_layers


def _column(num_layers: int, name: str, below: str, look: str, passed: int, dots: Sequence[int], sign: str = "") -> str:
    """One token: a bar as high as the layers passed, a dot at every place that is read, and what it holds in words."""
    marks = "".join(f'<i style="bottom:{_height(num_layers, dot):.3g}%"></i>' for dot in dots)
    bar = f'<span style="height:{_height(num_layers, passed):.3g}%"></span>' if dots else ""
    mark = f"<em>{escape(sign)}</em>" if sign else ""
    return (
        f'<div><div class="spd-tall spd-{look}">{bar}{mark}{marks}</div><b>{escape(name)}</b>'
        f"<small>{escape(below)}</small></div>"
    )


def _strip(num_layers: int, ticks: Sequence[int], columns: Iterable[str], plan: Plan | None = None) -> str:
    """The columns between the ruler with its ``ticks`` and, where there is a pipe, that of its stages."""
    left = _axis("layer", ((_height(num_layers, tick), str(tick)) for tick in ticks))
    if plan is None:
        return f'<div class="spd-strip">{left}{"".join(columns)}</div>'
    middles = [(start + stop) / 2 for start, stop in pairwise(plan.boundaries)]
    right = _axis("stage", ((_height(num_layers, middle), str(stage)) for stage, middle in enumerate(middles)))
    cuts = ",".join(
        f"var(--spd-cut) 0 {100 - _height(num_layers, layers):.3g}%/100% 1px"
        for layers in plan.boundaries[1:-1]
        if layers < num_layers
    )
    return f'<div class="spd-strip" style="--spd-cuts:{cuts}">{left}{"".join(columns)}{right}</div>'


def _axis(title: str, labels: Iterable[tuple[float, str]]) -> str:
    """Numbers beside the columns, from below; one that would stand in the one before it makes room."""
    marks, free = "", 0.0
    for height, label in labels:
        height = max(height, free)
        free = height + LABEL_HEIGHT
        marks += f'<s style="bottom:{height:.3g}%">{label}</s>'
    return f'<div class="spd-axis"><div class="spd-tall">{marks}</div><b>{title}</b></div>'
