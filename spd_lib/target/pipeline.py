"""The stages of a model and the moves they know: prefill, advance, rollback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.plan import Plan, make_plan
from ..core.trace import Stopwatch
from .flight import Flight, InFlight
from .layers import Decoder
from .proof import prove
from .stage import Stage


@dataclass(frozen=True)
class Finished:
    """A token that has left the last stage. ``logits``: float32 [vocab_size], what should follow it."""

    token: InFlight
    logits: Tensor


class Pipeline:
    """A causal language model cut into ``num_stages`` stages, for one sequence at a time.

    ``plan``: "even", "balanced", a :class:`~spd_lib.core.plan.Plan` or the layers per stage. The first time a model
    object is seen it has to prove that its staged form computes what its own forward computes
    (:func:`spd_lib.target.proof.prove`).
    """

    def __init__(self, model: nn.Module, num_stages: int = 4, plan: str | Plan | Sequence[int] = "even") -> None:
        self.decoder = Decoder(model)
        head_cost = self.decoder.head_cost if plan == "balanced" else 0.0
        self.plan = make_plan(plan, self.decoder.num_layers, num_stages, head_cost)
        prove(self.decoder)
        self.stages = [Stage(self.decoder, self.plan.layers(stage)) for stage in range(num_stages)]

    @property
    def num_stages(self) -> int:
        """n."""
        return len(self.stages)

    @torch.no_grad()
    def prefill(self, prompt_ids: list[int]) -> Tensor:
        """Forgets the last text and runs a whole prompt through all stages → float32 logits [vocab_size]."""
        self.rollback(0)
        return self._through_all_stages(prompt_ids)

    @torch.no_grad()
    def step(self, token_id: int) -> Tensor:
        """One token through all stages, one after the other: plain decoding → float32 logits [vocab_size]."""
        return self._through_all_stages([token_id])

    def _through_all_stages(self, token_ids: list[int]) -> Tensor:
        hidden = self.decoder.embed(token_ids)
        for stage in self.stages:
            hidden = stage.step(hidden)
        return self.decoder.head(hidden[:, -1:])[0]

    @torch.no_grad()
    def advance(self, flight: Flight, watch: Stopwatch) -> Finished | None:
        """Moves every token in flight one stage on; the one that leaves the last stage comes back with its logits."""
        for token in flight.tokens:
            with watch.lane(f"stage {token.depth}"):
                known = self.decoder.embed([token.token_id]) if token.hidden is None else token.hidden
                token.hidden = self.stages[token.depth].step(known)
            token.depth += 1
        if flight.tokens[0].depth < self.num_stages:
            return None
        finished = flight.finish()
        assert finished.hidden is not None
        with watch.lane("head"):
            return Finished(finished, self.decoder.head(finished.hidden)[0])

    def rollback(self, to: int) -> None:
        """Every stage forgets the tokens from position ``to`` on."""
        for stage in self.stages:
            stage.state.rollback(to)
