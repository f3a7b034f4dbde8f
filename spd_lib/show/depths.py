"""What the drafter sees: the depth strip, the anchors on the layer ruler, the training mask and its twin at work."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spd_lib.core.plan import Plan, even
from spd_lib.core.staircase import anchors_passed, depth_of, row_kinds

from .frames import Frames, Picture

SHOWN_COMPLETE = 2  # complete tokens to the left of those in flight


def depth_strip(num_layers: int, anchors: Sequence[int], stages: Sequence[int] = (2, 4, 8)) -> Frames:
    """What three methods know of each token when they draft the next one, for several n and fills.

    Columns are tokens, the newest on the right; a column is filled as high as the layers that its token has passed.
    """
    fills = [str(fill) for fill in range(1, max(stages) + 1)]
    controls = {"Method": ["SPD", "EAGLE-3", "PPSD"], "n": list(map(str, stages)), "in flight": fills}
    draw = {"SPD": _spd_strip, "EAGLE-3": _eagle_strip, "PPSD": _ppsd_strip}

    def picture(method: str, n: str, fill: str) -> Picture:
        return draw[method](even(num_layers, int(n)), anchors, min(int(fill), int(n)))

    hint = (
        "Raise the tokens in flight at n = 4: the staircase appears, then stays. Switch to EAGLE-3: what stands on "
        "its own guesses grows without end. Then n = 8: the steps become lower, their number grows."
    )
    return Frames(
        "What the drafter knows of each token", controls, picture, hint, ("SPD", str(stages[len(stages) // 2]), "3")
    )


def _column(name: str, below: str, passed: int, total: int, dots: Sequence[int], look: str) -> str:
    """One token: a bar as high as the layers passed, a dot at every anchor that it offers."""
    marks = "".join(f'<i style="bottom:{4 + 92 * dot / total:.1f}%"></i>' for dot in dots)
    height = 4 + 92 * passed / total if passed or dots else 0
    return (
        f'<div><div class="spd-tall spd-{look}"><span style="height:{height:.1f}%"></span>{marks}</div>'
        f"<b>{escape(name)}</b><small>{escape(below)}</small></div>"
    )


def _name(distance: int) -> str:
    return "t" if distance == 0 else f"t−{distance}"


def _spd_strip(plan: Plan, anchors: Sequence[int], fill: int) -> Picture:
    columns, told = [], []
    for distance in range(fill + SHOWN_COMPLETE - 1, -1, -1):
        layers = plan.layers_passed(depth_of(distance, 0, fill, plan.num_stages))
        dots = anchors[: anchors_passed(anchors, layers) + 1]
        look = "committed" if layers == plan.num_layers else "draft" if distance == 0 else "in-flight"
        columns.append(_column(_name(distance), f"{layers} layers", layers, plan.num_layers, dots, look))
        told.append(f"{_name(distance)}: {layers} layers, anchors {', '.join(map(str, dots))}")
    words = f"SPD, n = {plan.num_stages}, {fill} in flight, drafting t+1 before the stages step. {'; '.join(told)}."
    return Picture(f'<div class="spd-strip">{"".join(columns)}</div>', words)


def _eagle_strip(plan: Plan, anchors: Sequence[int], fill: int) -> Picture:
    low_middle_high = [anchors[1], anchors[len(anchors) // 2], anchors[-2]]
    columns = []
    for distance in range(fill + SHOWN_COMPLETE - 1, -1, -1):
        if distance >= fill:
            columns.append(
                _column(_name(distance), "three layers' features", plan.num_layers, plan.num_layers, low_middle_high,
                        "committed")
            )  # fmt: skip
        else:
            columns.append(_column(_name(distance), "its own guess", 0, plan.num_layers, [], "wasted"))
    words = (
        f"EAGLE-3, draft number {fill} of a block. Features of three layers for the tokens that the target has read; "
        f"for the {fill} newest it has only its own states: the further it drafts, the more it stands on guesses."
    )
    return Picture(f'<div class="spd-strip">{"".join(columns)}</div>', words)


def _ppsd_strip(plan: Plan, anchors: Sequence[int], fill: int) -> Picture:
    columns = []
    first = plan.layers_passed(1)
    for distance in range(fill + SHOWN_COMPLETE - 1, -1, -1):
        if distance == 0:
            columns.append(_column("t", f"{first} layers", first, plan.num_layers, [first], "in-flight"))
        else:
            columns.append(_column(_name(distance), "not read", 0, plan.num_layers, [], "idle"))
    words = (
        f"PPSD, n = {plan.num_stages}: the newest token after its first stage, {first} layers, and nothing else. It "
        "has to wait for that stage, so drafting comes after the step and adds to the cycle."
    )
    return Picture(f'<div class="spd-strip">{"".join(columns)}</div>', words)


def anchor_ruler(num_layers: int, anchors: Sequence[int], stages: Sequence[int] = (2, 4, 8, 16)) -> Frames:
    """For each depth the layers passed, the deepest anchor reached, and the layers between them that nobody reads."""

    def picture(n: str) -> Picture:
        plan = even(num_layers, int(n))
        passed = list(plan.boundaries)
        kinds = [anchors_passed(anchors, layers) for layers in passed]
        rows = {
            "stages passed": [str(depth) for depth in range(len(passed))],
            "layers passed": list(map(str, passed)),
            "deepest anchor": [str(anchors[kind]) for kind in kinds],
            "kind of row": list(map(str, kinds)),
            "layers not read": [str(layers - anchors[kind]) for layers, kind in zip(passed, kinds, strict=True)],
        }
        looks = ["committed" if kind == len(anchors) - 1 else "draft" if kind == 0 else "in-flight" for kind in kinds]
        body = "".join(
            f'<tr><th scope="row">{name}</th>'
            + "".join(
                f'<td class="spd-{look}">{cell}</td>' if name == "deepest anchor" else f"<td>{cell}</td>"
                for cell, look in zip(cells, looks, strict=True)
            )
            + "</tr>"
            for name, cells in rows.items()
        )
        unused = [str(anchor) for kind, anchor in enumerate(anchors) if kind not in kinds]
        words = f"n = {n}: " + "; ".join(
            f"{layers} layers passed, anchor {anchors[kind]}" for layers, kind in zip(passed, kinds, strict=True)
        )
        words += (
            f". No depth stops at the anchors {', '.join(unused)}." if unused else ". Every anchor is a depth's last."
        )
        return Picture(f"<table>{body}</table>", words)

    caption = f"Anchors {', '.join(map(str, anchors))} on a ruler of {num_layers} layers, even plan"
    hint = "n = 8: which depths share a kind of row? n = 16: how many layers must a token pass before it offers more?"
    return Frames(caption, {"n": list(map(str, stages))}, picture, hint, (str(stages[len(stages) // 3]),))


def mask_explorer(num_layers: int, anchors: Sequence[int], tokens: int = 8) -> Frames:
    """The training mask, query by query, and under it the same moment of a run: both from the same function."""
    controls = {"n": ["2", "4"], "in flight": ["1", "2", "3", "4"], "newest token": ["4", "6", str(tokens - 1)]}

    def picture(n: str, fill: str, newest: str) -> Picture:
        plan = even(num_layers, int(n))
        kinds = row_kinds(plan, anchors, int(fill))
        return _mask_picture(plan, anchors, kinds, tokens, int(newest))

    hint = (
        "Read the marked line, then the run under it: the same cells. Move the newest token: the staircase moves "
        "along, and the drafter learns all these moments in one forward. With one in flight only the diagonal is young."
    )
    return Frames("One training forward, and the same moment in a run", controls, picture, hint, ("4", "3", "6"))


def _mask_picture(plan: Plan, anchors: Sequence[int], kinds: Sequence[int], tokens: int, newest: int) -> Picture:
    complete = len(anchors) - 1

    def row(query: int) -> list[tuple[str, str]]:
        cells = []
        for key in range(query + 1):
            distance = query - key
            kind = kinds[distance] if distance < len(kinds) else complete
            look = "draft" if distance == 0 else "committed" if kind == complete else "in-flight"
            cells.append((str(anchors[kind]), look))
        return cells

    heads = "".join(f'<th scope="col">{key}</th>' for key in range(tokens))
    body = "".join(
        f'<tr{" class=spd-on" if query == newest else ""}><th scope="row">asks: {query}</th>'
        + "".join(f'<td class="spd-{look}">{text}</td>' for text, look in row(query))
        + "<td></td>" * (tokens - query - 1)
        + "</tr>"
        for query in range(tokens)
    )
    flight = [newest - distance for distance in range(min(len(kinds), newest + 1))]
    looks = ["draft", *["in-flight"] * len(flight)]
    pipe = "".join(
        f'<tr><th scope="row">stage {stage}</th><td class="spd-{looks[stage]}">token {token}, '
        f"offers {anchors[kinds[stage]]}</td></tr>"
        for stage, token in enumerate(flight)
    )
    older = newest - len(flight)
    if older >= 0:
        done = f"tokens 0–{older}, offer {anchors[complete]}"
        pipe += f'<tr><th scope="row">done</th><td class="spd-committed">{done}</td></tr>'
    told = "; ".join(f"token {newest - d} offers layer {anchors[kinds[d]]}" for d in range(len(flight)))
    words = (
        f"n = {plan.num_stages}, {len(kinds)} in flight, token {newest} asks for token {newest + 1}: {told}; all older "
        f"ones offer layer {anchors[complete]}. Numbers in the cells: the deepest layer whose output the row holds."
    )
    table = f'<table><tr><th scope="col">token</th>{heads}</tr>{body}</table><p>The same moment in a run:</p>'
    return Picture(f"{table}<table>{pipe}</table>", words)
