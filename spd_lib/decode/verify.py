"""The three rules that turn logits into tokens and judge a draft; all of them are exact.

Whatever the drafter proposes, the committed text follows the target's own law: greedy and Gumbel coupling even write
the very text that the target would write alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from . import noise


@dataclass(frozen=True)
class Draft:
    """A drawn token. ``ids`` [k], ``probabilities`` float64 [k]: the Q it was drawn from, where the rule needs it."""

    token_id: int
    guess: bool = False
    ids: Tensor | None = None
    probabilities: Tensor | None = None


@dataclass(frozen=True)
class Ruling:
    """``token_id`` is what is committed: the draft if ``accepted``, else the correction."""

    accepted: bool
    token_id: int


class Rule(Protocol):
    """How tokens are drawn. ``scores`` are float32 logits after the sampling chain, −∞ where a token is ruled out."""

    def draw(self, ids: Tensor, scores: Tensor, position: int) -> Draft:
        """Draws a draft for ``position`` from a proposal over ``ids`` [k] with ``scores`` [k]."""

    def choose(self, scores: Tensor, position: int) -> int:
        """The target's token for ``position`` when there is no draft; ``scores`` [vocab_size]."""

    def judge(self, scores: Tensor, draft: Draft, position: int) -> Ruling:
        """Judges the draft for ``position`` by the target's ``scores`` [vocab_size]."""


class Greedy:
    """argmax; ties go to the lowest id."""

    def draw(self, ids: Tensor, scores: Tensor, position: int) -> Draft:
        return Draft(int(ids[scores.argmax()]))

    def choose(self, scores: Tensor, position: int) -> int:
        return int(scores.argmax())

    def judge(self, scores: Tensor, draft: Draft, position: int) -> Ruling:
        token_id = self.choose(scores, position)
        return Ruling(token_id == draft.token_id, token_id)


class Gumbel:
    """token = argmax(log P + G), with noise G fixed by (seed, row, position) and shared by target and draft.

    The text is the one that plain sampling with this seed writes, whatever the drafter and n (Daliri et al., 2024).
    Acceptance is at least (1 − TV)/(1 + TV), with TV the total variation distance of P and Q.
    """

    def __init__(self, seed: int, row: int, vocab_size: int, device: torch.device) -> None:
        # Draft and target need the noise of a position a pipe's length apart; older positions never come back.
        self._noise = lru_cache(maxsize=64)(lambda position: noise.gumbel(seed, row, position, vocab_size, device))

    def draw(self, ids: Tensor, scores: Tensor, position: int) -> Draft:
        return Draft(int(ids[(scores + self._noise(position)[ids]).argmax()]))

    def choose(self, scores: Tensor, position: int) -> int:
        return int((scores + self._noise(position)).argmax())

    def judge(self, scores: Tensor, draft: Draft, position: int) -> Ruling:
        token_id = self.choose(scores, position)
        return Ruling(token_id == draft.token_id, token_id)


def _pick(weights: Tensor, u: float) -> int:
    """Index drawn with probability weight ÷ sum by inverting the cumulative sum at ``u`` in (0, 1)."""
    sums = weights.double().cumsum(0)
    # A weight of zero has no interval of its own, so "right" never lands on it.
    return int(torch.searchsorted(sums, u * sums[-1:], right=True).clamp_max(len(weights) - 1))


class Rejection:
    """Draft x ~ Q; accept with probability min(1, P(x)/Q(x)), else draw from (P − Q)₊ (Leviathan et al., 2023).

    The highest acceptance that any exact rule can have, 1 − TV(P, Q); the text depends on drafter and n, its law does
    not.
    """

    def __init__(self, seed: int, row: int) -> None:
        self._seed, self._row = seed, row
        # A position is drafted anew after each flush, with dice of its own: a drafter that remembers what it proposed
        # before must not be able to foresee the draw.
        self._attempts: Counter[int] = Counter()

    def _uniform(self, position: int, purpose: int, attempt: int = 0) -> float:
        return noise.uniform(self._seed, self._row, position, purpose, attempt)

    def draw(self, ids: Tensor, scores: Tensor, position: int) -> Draft:
        probabilities = scores.double().softmax(0)
        index = _pick(probabilities, self._uniform(position, noise.DRAFT, self._attempts[position]))
        self._attempts[position] += 1
        return Draft(int(ids[index]), ids=ids, probabilities=probabilities)

    def choose(self, scores: Tensor, position: int) -> int:
        return _pick(scores.double().softmax(0), self._uniform(position, noise.CHOICE))

    def judge(self, scores: Tensor, draft: Draft, position: int) -> Ruling:
        assert draft.ids is not None and draft.probabilities is not None
        target = scores.double().softmax(0)
        proposal = torch.zeros_like(target).index_put_((draft.ids,), draft.probabilities, accumulate=True)
        x = draft.token_id
        if self._uniform(position, noise.ACCEPT) * float(proposal[x]) < float(target[x]):
            return Ruling(True, x)
        residual = (target - proposal).clamp_min(0)
        # Equal up to rounding: nothing is left over, and the target itself is the residual's limit.
        weights = residual if float(residual.sum()) > 0 else target
        return Ruling(False, _pick(weights, self._uniform(position, noise.CHOICE)))
