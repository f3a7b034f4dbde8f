"""Acceptance without running the engine: the text is known, so only the drafts are looked up.

Greedy and Gumbel texts depend neither on the drafter nor on n. One forward of the target over a finished text holds
all that any drafter would have seen; one forward of the module for each way the pipe can be filled gives all drafts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.plan import Plan
from ..core.simulate import simulate
from ..core.staircase import row_kinds
from ..core.trace import Trace
from ..decode.noise import gumbel
from ..decode.sampling import warpers
from ..draft.module import PipelineDraftModule
from ..draft.simple import PromptLookup
from ..target.flight import Flight
from ..target.layers import Decoder
from .texts import Sampling, Text

NEAR_TIE = 1e-4  # margins below this may fall the other way in the engine, which adds in another order (float32)


@dataclass(frozen=True)
class Judged:
    """A judged draft. ``index``: of the new token (1 …). ``fill``: tokens in flight when it was made."""

    index: int
    fill: int
    accepted: bool


@dataclass(frozen=True)
class Drafts:
    """All drafts of a text at one fill: entry i − 1 is about new token i.

    ``chance``: float64 [new − 1], the probability of acceptance, 0 or 1 where nothing is left to chance. ``near``:
    bool [new − 1], near-ties.
    """

    chance: Tensor
    near: Tensor


class Replay:
    """The drafts that a module would make along one text.

    ``coupling``: for sampled texts, "gumbel" or "rejection".
    """

    def __init__(
        self, decoder: Decoder, module: PipelineDraftModule, text: Text, sampling: Sampling, coupling: str = "gumbel"
    ) -> None:
        self.module, self.text, self.sampling, self.coupling = module, text, sampling, coupling
        ids = [*text.prompt_ids, *text.new_ids]
        first = max(0, len(text.prompt_ids) - module.config.window)  # what is older is out of the drafter's sight
        with torch.inference_mode():
            self._states = decoder.read(torch.tensor([ids]), module.config.anchors)[:, :, first:]
            self._asks = torch.zeros(1, len(ids) - first, dtype=torch.bool, device=decoder.device)
            self._asks[0, len(text.prompt_ids) - first : -1] = True
            self._truth = torch.tensor(text.new_ids[1:], device=decoder.device)
            self._warp = warpers(sampling.temperature, sampling.top_k, sampling.top_p)
            self._noise = self._gumbel(decoder)
            self._likelihood = self._target_probability(decoder)
        self._made: dict[tuple[int, ...], Drafts] = {}

    def _gumbel(self, decoder: Decoder) -> Tensor | None:
        """The noise of every judged position on the draft ids  # [new − 1, draft_vocab_size]"""
        if self.sampling.greedy or self.coupling != "gumbel" or not len(self._truth):
            return None
        first = len(self.text.prompt_ids) + 1
        seed, row, device = self.sampling.seed, self.text.row, decoder.device
        noise = (gumbel(seed, row, first + i, decoder.vocab_size, device) for i in range(len(self._truth)))
        return torch.stack([each[self.module.draft_ids] for each in noise])

    def _target_probability(self, decoder: Decoder) -> Tensor | None:
        """P of every judged token under the sampling chain  # float64 [new − 1]"""
        if self.sampling.greedy or self.coupling != "rejection" or not len(self._truth):
            return None
        scores = self._warped(decoder.head(self._states[-1][self._asks][None]))
        likelihood = scores.double().softmax(dim=-1).gather(1, self._truth[:, None])[:, 0]
        # The text was written one token at a time: at the edge of top-k or top-p rounding may rule its token out here.
        return likelihood.clamp_min(torch.finfo(torch.float64).tiny)

    def _warped(self, scores: Tensor) -> Tensor:
        return self._warp(torch.zeros(len(scores), 1, dtype=torch.int64), scores) if self._warp else scores

    @torch.inference_mode()
    def drafts(self, kinds: tuple[int, ...]) -> Drafts:
        """What is drafted for each new token but the first, with rows of these kinds in flight, newest first."""
        if kinds not in self._made:
            self._made[kinds] = self._draft(kinds)
        return self._made[kinds]

    def _draft(self, kinds: tuple[int, ...]) -> Drafts:
        scores = self._warped(self.module(self._states, kinds, select=self._asks).float())
        if self._likelihood is not None:
            proposal = scores.double().softmax(dim=-1)
            known = self.module.draft_ids[None] == self._truth[:, None]  # at most one column a row
            chance = (proposal * known).sum(dim=-1) / self._likelihood
            return Drafts(chance.clamp(max=1), torch.zeros_like(known[:, 0]))
        if self._noise is not None:
            scores = scores + self._noise
        best = scores.topk(min(2, scores.shape[1]), dim=-1)
        right = self.module.draft_ids[best.indices[:, 0]] == self._truth
        # Two neighbours of a coarser dtype are further apart than that.
        tie = (best.values[:, 0].abs() * torch.finfo(self._states.dtype).eps).clamp_min(NEAR_TIE)
        return Drafts(right.double(), best.values[:, 0] - best.values[:, -1] < tie)

    def judged(self, plan: Plan) -> Iterator[Judged]:
        """The judged drafts of a run in order: one at fill 1 after each flush, then one more in flight each time."""
        anchors, n = self.module.config.anchors, plan.num_stages
        chances = [self.drafts(row_kinds(plan, anchors, fill)).chance.tolist() for fill in range(1, n + 1)]
        dice = random.Random(f"{self.sampling.seed}:{self.text.question_id}:{plan.boundaries}")
        yield from walk(len(self.text.new_ids), n, lambda index, fill: dice.random() < chances[fill - 1][index - 1])

    def near_ties(self, plan: Plan) -> int:
        """Judged drafts whose first two choices are so close that the engine may draw the other one."""
        anchors = self.module.config.anchors
        kinds = [row_kinds(plan, anchors, fill) for fill in range(1, plan.num_stages + 1)]
        return sum(bool(self.drafts(kinds[each.fill - 1]).near[each.index - 1]) for each in self.judged(plan))

    def agreement(self, plan: Plan, fill: int) -> tuple[float, int]:
        """Accepted and made drafts at this fill, over all counted tokens where so many can be in flight."""
        drafts = self.drafts(row_kinds(plan, self.module.config.anchors, fill))
        chance = drafts.chance[fill - 1 : max(0, self.text.counted - 1)]
        return float(chance.sum()), len(chance)


def walk(num_tokens: int, num_stages: int, right: Callable[[int, int], bool]) -> Iterator[Judged]:
    """The judged drafts of a text of ``num_tokens`` tokens; ``right(index, fill)`` says how each comes out."""
    fill = 1
    for index in range(1, num_tokens):
        accepted = right(index, fill)
        yield Judged(index, fill, accepted)
        fill = min(fill + 1, num_stages) if accepted else 1


def lookup_judged(text: Text, num_stages: int) -> Iterator[Judged]:
    """Prompt lookup on the same text: its guess depends on what is written alone."""
    drafter, start = PromptLookup(), len(text.prompt_ids)
    ids = [*text.prompt_ids, *text.new_ids]

    def right(index: int, fill: int) -> bool:
        return int(drafter.propose(Flight(ids[: start + index])).ids[0]) == ids[start + index]

    yield from walk(len(text.new_ids), num_stages, right)


def trace_of(text: Text, judged: list[Judged], num_stages: int) -> Trace:
    """The Trace of the run that these judgements make."""
    flags, length = [each.accepted for each in judged], len(text.prompt_ids)
    trace = simulate(flags, num_stages, len(text.new_ids), budget=text.budget, prompt_length=length)
    # The simulator cannot know that the last token of the budget was an end of sequence.
    return replace(trace, stop_reason=text.stop_reason)
