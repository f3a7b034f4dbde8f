"""The anchors on the layer ruler: what a token offers when it has passed so many stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spd_lib.core.plan import NAMED_PLANS, make_plan
from spd_lib.core.staircase import anchors_passed

from .assets import asset
from .frames import Frames, Picture
from .ruler import LayerRuler


@dataclass(frozen=True)
class AnchoredRuler(LayerRuler):
    """The layer ruler with ``anchors`` on it: full where some depth stops, hollow where none does.

    Hatched: layers that a token has passed at a border and that its row does not hold yet.
    """

    anchors: Sequence[int] = ()

    @property
    def kinds(self) -> list[int]:
        """Kind of row at depth 0 … n."""
        return [anchors_passed(self.anchors, layers) for layers in self.plan.boundaries]

    @property
    def unread(self) -> list[int]:
        """At depth 0 … n, the layers between the deepest anchor and the border."""
        return [layers - self.anchors[kind] for layers, kind in zip(self.plan.boundaries, self.kinds, strict=True)]

    def mark(self, layer: int) -> str:
        """The anchor that stands behind ``layer``, if one does."""
        if layer + 1 not in self.anchors[1:]:
            return ""
        stops = self.anchors.index(layer + 1) in self.kinds
        return f"<u{'' if stops else ' class=spd-passed'}>{layer + 1}</u>"

    def cell(self, layer: int) -> str:
        hidden = any(
            border - count <= layer < border for border, count in zip(self.plan.boundaries, self.unread, strict=True)
        )
        return f"<i{' class=spd-unread' if hidden else ''}><span>{layer}</span>{self.mark(layer)}</i>"

    def foot(self, stage: int) -> str:
        return f"<b>{stage}</b>"

    def front(self) -> str:
        return '<div class="spd-end spd-draft"><div class="spd-body"><i><u>0</u></i></div><b>embed</b></div>'

    def back(self) -> str:
        return '<div class="spd-end spd-judged"><div class="spd-body"></div><b>head</b></div>'

    def table(self) -> str:
        """Depth by depth: layers passed, deepest anchor, kind of row, layers that the row does not hold."""
        looks = [
            "committed" if kind == len(self.anchors) - 1 else "draft" if kind == 0 else "in-flight"
            for kind in self.kinds
        ]
        rows: dict[str, Sequence[object]] = {
            "stages passed": range(len(looks)),
            "layers passed": self.plan.boundaries,
            "deepest anchor": [self.anchors[kind] for kind in self.kinds],
            "kind of row": self.kinds,
            "layers not read": self.unread,
        }
        body = ""
        for name, cells in rows.items():
            styles = [f' class="spd-{look}"' if name == "kind of row" else "" for look in looks]
            shown = "".join(f"<td{style}>{cell}</td>" for cell, style in zip(cells, styles, strict=True))
            body += f'<tr><th scope="row">{name}</th>{shown}</tr>'
        return f"<table>{body}</table>"

    def words(self) -> str:
        """The ruler in a few sentences."""
        passed, kinds = (", ".join(map(str, row)) for row in (self.plan.boundaries, self.kinds))
        unused = [str(kind) for kind in range(len(self.anchors)) if kind not in self.kinds]
        note = (
            f"No row is of kind {', '.join(unused)}: those anchors are read only as a part of deeper rows."
            if unused
            else "Every kind occurs."
        )
        deepest = ", ".join(str(self.anchors[kind]) for kind in self.kinds)
        return (
            f"n = {self.plan.num_stages}, {self.plan.name} plan, depth 0 to {self.plan.num_stages}. Layers passed: "
            f"{passed}. Deepest anchor: {deepest}. Kind of row: {kinds}. {note}"
        )


def anchor_ruler(
    num_layers: int, anchors: Sequence[int], head_cost: float, stages: Sequence[int] = (2, 4, 8, 16)
) -> Frames:
    """Which depth offers which anchors, for several n and both plans; ``head_cost`` (layers) is for `balanced`."""

    def picture(n: str, plan: str) -> Picture:
        cut = make_plan(plan, num_layers, int(n), head_cost)
        ruler = AnchoredRuler(cut, head_cost, "", anchors)
        return Picture(f'<div class="spd-ruler spd-anchored">{ruler.track()}</div>{ruler.table()}', ruler.words())

    hint = (
        "n = 8: which depths share a kind of row? n = 16: how many stages must a token pass before it offers more? "
        "Then the other plan: the borders move, the anchors stay."
    )
    caption = (
        "Anchors on the layer ruler. Full: some depth stops there; hollow: none does. Hatched: passed, not read yet"
    )
    controls = {"n": list(map(str, stages)), "plan": list(NAMED_PLANS)}
    start = (str(stages[len(stages) // 3]), "even")
    return Frames(caption, controls, picture, hint, start, asset("ruler.css") + asset("anchors.css"))
