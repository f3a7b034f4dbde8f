"""The stages of a model and the moves they know: prefill, advance, rollback."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.plan import Plan, make_plan
from ..core.trace import Stopwatch
from .flight import Flight, InFlight
from .layers import Decoder, Features
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
        self.anchors: tuple[int, ...] = ()
        self.prompt_features: Features = {}

    @property
    def num_stages(self) -> int:
        """n."""
        return len(self.stages)

    @torch.no_grad()
    def prefill(self, prompt_ids: list[int], anchors: Collection[int] = ()) -> Tensor:
        """Forgets the last text and runs a whole prompt through all stages → float32 logits [vocab_size].

        ``anchors``: layer counts (1 … L) at which this text's hidden states are kept for the drafter, those of the
        prompt in ``prompt_features``, those of later tokens with the tokens.
        """
        self.rollback(0)
        self.anchors = tuple(anchors)
        self.prompt_features = dict.fromkeys(self.anchors)
        return self._through_all_stages(prompt_ids, self.prompt_features)

    @torch.no_grad()
    def step(self, token_id: int) -> Tensor:
        """One token through all stages, one after the other: plain decoding → float32 logits [vocab_size]."""
        return self._through_all_stages([token_id])

    def _through_all_stages(self, token_ids: list[int], features: Features | None = None) -> Tensor:
        hidden = self.decoder.embed(token_ids)
        for stage in self.stages:
            hidden = stage.step(hidden, features)
        return self.decoder.head(hidden[:, -1:])[0]

    @torch.no_grad()
    def advance(self, flight: Flight, watch: Stopwatch) -> Finished | None:
        """Moves every token in flight one stage on; the one that leaves the last stage comes back with its logits."""
        for token in flight.tokens:
            with watch.lane(f"stage {token.depth}"):
                if token.hidden is None:
                    token.hidden, token.features = self.decoder.embed([token.token_id]), dict.fromkeys(self.anchors)
                token.hidden = self.stages[token.depth].step(token.hidden, token.features)
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
