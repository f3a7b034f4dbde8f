"""From logits to tokens: one chain of processors, one rule, used alike for the target and its drafts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import LogitsProcessorList, MinPLogitsWarper
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from ..draft.proposal import Proposal
from .verify import Draft, Greedy, Gumbel, Rejection, Rule, Ruling

GREEDY_BELOW = 1e-5  # temperatures below this are greedy, for target and draft alike
COUPLINGS = ("gumbel", "rejection")
WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)


def warpers(temperature: float, top_k: int | None, top_p: float | None) -> LogitsProcessorList:
    """The sampling chain temperature → top-k → top-p, empty for greedy decoding.

    Raises ``ValueError`` for a temperature that is negative or not a number, top_k < 0 and top_p outside (0, 1].
    """
    if not (isinstance(temperature, (int, float)) and math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be a number ≥ 0 (0 is greedy), got {temperature}")
    if top_k is not None and top_k < 0:
        raise ValueError(f"top_k must be ≥ 1, or 0 or None for no limit, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1], got {top_p}")
    chain = LogitsProcessorList()
    if temperature < GREEDY_BELOW:
        return chain
    if temperature != 1:
        chain.append(TemperatureLogitsWarper(float(temperature)))
    if top_k:
        chain.append(TopKLogitsWarper(top_k))
    if top_p is not None and top_p < 1:
        chain.append(TopPLogitsWarper(float(top_p)))
    return chain


def fresh_seed() -> int:
    """A seed from torch's default generator, so that ``torch.manual_seed`` reproduces an unseeded call."""
    return int(torch.randint(2**63 - 1, ()))


def make_rule(coupling: str, *, seed: int, row: int, vocab_size: int, device: torch.device) -> Rule:
    """The sampling rule by name. Raises ``ValueError`` naming the known ones."""
    if coupling == "gumbel":
        return Gumbel(seed, row, vocab_size, device)
    if coupling == "rejection":
        return Rejection(seed, row)
    raise ValueError(f"unknown coupling {coupling!r}; the known ones are {', '.join(COUPLINGS)}")


class Sampler:
    """Draws drafts, chooses and judges tokens.

    ``processors``: transformers' logits processors for the target, which see the committed prefix. Those among them
    that only reshape a distribution (temperature, top-k, top-p, min-p) are applied to drafts too.
    """

    def __init__(self, rule: Rule, processors: Sequence = (), *, vocab_size: int, device: torch.device) -> None:
        self.rule = rule
        self.processors = LogitsProcessorList(processors)
        self.draft_warpers = LogitsProcessorList([p for p in processors if isinstance(p, WARPERS)])
        self.vocab_size = vocab_size
        self.device = device

    @classmethod
    def greedy(cls, vocab_size: int, device: torch.device, processors: Sequence = ()) -> Sampler:
        """argmax."""
        return cls(Greedy(), processors, vocab_size=vocab_size, device=device)

    def draw(self, proposal: Proposal, position: int) -> Draft:
        """Draws the draft for ``position``. Raises ``ValueError`` if it is not a token of the target."""
        ids = proposal.ids.to(self.device)
        logits = torch.zeros(len(ids)) if proposal.logits is None else proposal.logits.detach()
        scores = logits.to(device=self.device, dtype=torch.float32)
        if not bool(scores.max().isfinite()):
            raise ValueError("the drafter's logits are not finite: NaN or infinity among them")
        if len(ids) > 1 and self.draft_warpers:
            scores = self.draft_warpers(ids[None], scores[None])[0]
        drawn = self.rule.draw(ids, scores, position)
        if not 0 <= drawn.token_id < self.vocab_size:
            raise ValueError(
                f"the drafter proposed token id {drawn.token_id}, the target's vocabulary has {self.vocab_size} ids: "
                "drafter and target do not share a vocabulary"
            )
        return replace(drawn, guess=proposal.guess)

    def choose(self, logits: Tensor, prefix: list[int]) -> int:
        """The target's token after ``prefix``; logits: float32 [vocab_size]."""
        return self.rule.choose(self._processed(logits, prefix), len(prefix))

    def judge(self, logits: Tensor, prefix: list[int], draft: Draft) -> Ruling:
        """Judges the draft that would follow ``prefix``; logits: float32 [vocab_size]."""
        return self.rule.judge(self._processed(logits, prefix), draft, len(prefix))

    def _processed(self, logits: Tensor, prefix: list[int]) -> Tensor:
        if not self.processors:
            return logits
        return self.processors(torch.tensor([prefix], device=self.device), logits[None])[0]
