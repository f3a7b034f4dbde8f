"""From logits to tokens: one chain of processors, one rule, used alike for the target and its drafts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ..draft.proposal import Proposal
from .verify import Draft, Greedy, Gumbel, Rejection, Rule, Ruling

GREEDY_BELOW = 1e-5  # temperatures below this are greedy, for target and draft alike
COUPLINGS = ("gumbel", "rejection")
WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)


def warpers(temperature: float, top_k: int | None, top_p: float | None) -> LogitsProcessorList:
    """The sampling chain temperature → top-k → top-p, empty for greedy decoding.

    Raises ``ValueError`` for a temperature that is negative or not a number, top_k < 0 and top_p outside (0, 1].
    """
    if not (isinstance(temperature, Real) and math.isfinite(temperature) and temperature >= 0):
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


def check_seed(seed: int) -> None:
    """Raises ``ValueError`` for a seed that the noise cannot tell from another one."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be between 0 and 2⁶⁴ − 1, got {seed}")


def make_rule(coupling: str, *, seed: int, row: int, vocab_size: int, device: torch.device) -> Rule:
    """The sampling rule by name.

    Raises ``ValueError`` naming the known ones, and for a seed or row that the noise cannot tell from another one.
    """
    check_seed(seed)
    if not 0 <= row < 2**32:
        raise ValueError(f"first_row and the rows after it must be between 0 and 2³² − 1, got row {row}")
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
        """Draws the draft for ``position``. Raises ``ValueError`` if the proposal cannot be drawn from."""
        ids, scores = self._checked(proposal)
        if len(ids) > 1 and self.draft_warpers:
            scores = self.draft_warpers(ids[None], scores[None])[0]
        return replace(self.rule.draw(ids, scores, position), guess=proposal.guess)

    def _checked(self, proposal: Proposal) -> tuple[Tensor, Tensor]:
        """Its ids and float32 logits on the target's device, after a look at them."""
        if not isinstance(proposal, Proposal):
            raise TypeError(f"a drafter must propose a Proposal, got {type(proposal).__name__}")
        logits = torch.zeros(len(proposal.ids), device="cpu") if proposal.logits is None else proposal.logits.detach()
        for tensor in (proposal.ids, logits):
            if tensor.is_meta:
                raise ValueError("the drafter's tensors are on the device 'meta', where they have no values")
        ids = proposal.ids.to(device=self.device, dtype=torch.int64)
        scores = logits.to(device=self.device, dtype=torch.float32)
        if not bool(scores.max().isfinite()):
            raise ValueError("the drafter's logits are NaN, +∞, or all of them −∞")
        lowest, highest = (int(end) for end in ids.aminmax())
        if not 0 <= lowest <= highest < self.vocab_size:
            raise ValueError(
                f"the drafter proposed token id {lowest if lowest < 0 else highest}, the target's vocabulary has "
                f"{self.vocab_size} ids: drafter and target do not share a vocabulary"
            )
        return ids, scores

    def choose(self, logits: Tensor, prefix: list[int]) -> int:
        """The target's token after ``prefix``; logits: float32 [vocab_size]."""
        return self.rule.choose(self._processed(logits, prefix), len(prefix))

    def judge(self, logits: Tensor, prefix: list[int], draft: Draft) -> Ruling:
        """Judges the draft that would follow ``prefix``; logits: float32 [vocab_size]."""
        return self.rule.judge(self._processed(logits, prefix), draft, len(prefix))

    def _processed(self, logits: Tensor, prefix: list[int]) -> Tensor:
        if not bool(logits.max().isfinite()):
            raise ValueError(f"the target's logits are not finite after {len(prefix)} tokens")
        if not self.processors:
            return logits
        return self.processors(torch.tensor([prefix], device=self.device), logits[None])[0]
