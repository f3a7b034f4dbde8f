"""The layer ruler: a decoder laid out from embedding to head, drawn to scale, with the cuts of a plan in it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from spd_lib.core.plan import Plan

from .assets import asset
from .palette import css_text


@dataclass(frozen=True)
class LayerRuler:
    """A model in stages that a notebook can show: HTML where there is a browser, characters elsewhere."""

    plan: Plan
    head_cost: float
    caption: str

    def owned(self, stage: int) -> str:
        """The layers of ``stage`` as "0–7"."""
        layers = self.plan.layers(stage)
        return f"{layers[0]}–{layers[-1]}" if len(layers) > 1 else str(layers[0]) if layers else "none"

    def html(self) -> str:
        """The ruler as one self-contained piece of HTML."""
        told = "; ".join(f"stage {stage}: layers {self.owned(stage)}" for stage in range(self.plan.num_stages))
        label = f"Embedding, then {told}, then norm and head, which weigh {self.head_cost:.1f} layers."
        return (
            f'<div class="spd-ruler"><style>{css_text()}\n{asset("ruler.css")}</style>'
            f"<figure><figcaption>{escape(self.caption)}</figcaption>"
            f'<div role="img" aria-label="{escape(label)}">{self.track()}</div></figure></div>'
        )

    def track(self) -> str:
        """Embedding, stages and head side by side."""
        stages = "".join(self._stage(stage) for stage in range(self.plan.num_stages))
        return f'<div class="spd-track">{self.front()}{stages}{self.back()}</div>'

    def front(self) -> str:
        """The embedding."""
        return '<div class="spd-end spd-draft" style="flex:0 0 4.3em"><div class="spd-body"></div><b>embed</b></div>'

    def back(self) -> str:
        """Norm and head."""
        return (
            f'<div class="spd-end spd-judged" style="flex-grow:{self.head_cost:.3f}"><div class="spd-body"></div>'
            f"<b>norm + head</b><small>{self.head_cost:.1f} layers</small></div>"
        )

    def cell(self, layer: int) -> str:
        """One layer."""
        return f"<i><span>{layer}</span></i>"

    def foot(self, stage: int) -> str:
        """What stands under a stage."""
        return f'<b>stage {stage}</b><small>{self.owned(stage)}</small><div class="spd-memory">memory</div>'

    def _stage(self, stage: int) -> str:
        layers = self.plan.layers(stage)
        cells = "".join(map(self.cell, layers))
        return (
            f'<div class="spd-stage spd-in-flight" style="flex-grow:{max(len(layers), 0.5)}">'
            f'<div class="spd-body">{cells}</div>{self.foot(stage)}</div>'
        )

    def __str__(self) -> str:
        stages = " | ".join(f"stage {stage}: {self.owned(stage)}" for stage in range(self.plan.num_stages))
        return f"{self.caption}\nembed | {stages} | norm + head ({self.head_cost:.1f} layers)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


def layer_ruler(plan: Plan, head_cost: float, caption: str | None = None) -> LayerRuler:
    """The layers of a model from embedding to head, cut by ``plan``; the head is ``head_cost`` layers wide."""
    return LayerRuler(plan, head_cost, caption or f"{plan.num_layers} layers in {plan.num_stages} stages")
