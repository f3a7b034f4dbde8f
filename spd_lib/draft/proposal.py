"""What a drafter hands to the engine, and what the engine expects of a drafter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..target.flight import Flight
from ..target.pipeline import Pipeline


@dataclass(frozen=True)
class Proposal:
    """A drafter's opinion about the next token; the engine's sampler draws from it.

    ``ids``: int64 [k], target token ids. ``logits``: [k], one for each id, or ``None`` for a point mass on the single
    id. ``guess``: the drafter knew nothing and fell back on something.
    """

    ids: Tensor
    logits: Tensor | None = None
    guess: bool = False

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.ids.numel() == 0:
            raise ValueError(f"a proposal needs ids of shape [k], k ≥ 1, got {list(self.ids.shape)}")
        if self.logits is None and self.ids.numel() != 1:
            raise ValueError(f"a proposal without logits is a point mass on one id, got {self.ids.numel()} ids")
        if self.logits is not None and self.logits.shape != self.ids.shape:
            raise ValueError(f"logits {list(self.logits.shape)} do not match ids {list(self.ids.shape)}")


class Drafter(Protocol):
    """Predicts the token after the newest one in flight, from what is known before the stages step.

    A drafter never abstains, and it must not learn from tokens that were thrown away. One that reads the target's
    hidden states also has ``anchors``, the layer counts at which it wants them.
    """

    def begin(self, pipeline: Pipeline, prompt_ids: list[int]) -> None:
        """A new text starts. ``pipeline`` has just been prefilled with ``prompt_ids``."""

    def propose(self, flight: Flight) -> Proposal:
        """A proposal for ``flight.next_position``."""

    def rollback(self, to: int) -> None:
        """The tokens from position ``to`` on were thrown away."""


def wanted_anchors(drafter: Drafter) -> tuple[int, ...]:
    """The layer counts at which the drafter wants the target's hidden states; most want none."""
    return tuple(getattr(drafter, "anchors", ()))
