"""Counting what a rule writes over many seeds, and comparing the counts with the exact law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt

import pytest
import torch
from torch import Tensor

from spd_lib.core.trace import Stopwatch
from spd_lib.decode import noise
from spd_lib.draft import Proposal
from spd_lib.target import Finished, Flight

WORDS = 8  # 32-bit words kept for each use
SEEDS = range(20_000)
Z = 3.719  # one-sided normal quantile of 1 − 10⁻⁴; the seeds are fixed, so a rule passes always or never


def critical(degrees: int) -> float:
    """The chi-square value that a right rule exceeds once in 10⁴ choices of seeds (Wilson and Hilferty, 1931)."""
    ninth = 2 / (9 * degrees)
    return degrees * (1 - ninth + Z * sqrt(ninth)) ** 3


def excess(counts: Tensor, law: Tensor) -> float:
    """Chi-square of ``counts`` [cells] against ``law`` [cells] ÷ its critical value: a right rule stays below 1.

    Infinite if something was written that the law rules out.
    """
    possible = law > 0
    if bool(counts[~possible].any()):
        return float("inf")
    expected = law[possible].double() * counts.sum()
    assert float(expected.min()) >= 5, "too few runs for this law"
    return float(((counts[possible] - expected) ** 2 / expected).sum()) / critical(int(possible.sum()) - 1)


def counted(outcomes: Iterable[Sequence[int]], vocab_size: int, length: int) -> Tensor:
    """How often each text of ``length`` tokens over ``vocab_size`` ids came, flattened."""
    places = torch.tensor([vocab_size**power for power in reversed(range(length))])
    cells = (torch.tensor([list(text) for text in outcomes]) * places).sum(1)
    return torch.bincount(cells, minlength=vocab_size**length)


class Words:
    """The noise of many seeds at once, computed by the library's generator; stands in for ``noise.noise_words``."""

    def __init__(self, seeds: Sequence[int], rows: Iterable[int] = (0,), positions: Iterable[int] = range(8)) -> None:
        keys = torch.tensor(list(seeds))[:, None]
        blocks = torch.arange(WORDS // 4)[None, :].expand(len(keys), -1)
        self._rows = {seed: index for index, seed in enumerate(seeds)}
        self._table = {}
        for row, position, purpose in ((r, p, u) for r in rows for p in positions for u in range(4)):
            counter = (blocks, *(torch.full_like(blocks, value) for value in (position, row, purpose)))
            words = noise.philox(counter, (keys, torch.zeros_like(keys)))  # type: ignore[arg-type]
            self._table[row, position, purpose] = torch.stack(words, dim=2).flatten(1)  # [seeds, WORDS]

    def __call__(self, seed: int, row: int, position: int, count: int, purpose: int, device: object = "cpu") -> Tensor:
        return self._table[row, position, purpose][self._rows[seed], :count]


def use(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the rules take their noise from the table, once the table is seen to hold the library's own numbers."""
    for seed, position, purpose in ((0, 1, noise.GUMBEL), (1_234, 2, noise.DRAFT), (19_999, 4, noise.CHOICE)):
        own = noise.noise_words(seed, 0, position, WORDS, purpose, "cpu")
        assert words(seed, 0, position, WORDS, purpose).equal(own)
    monkeypatch.setattr(noise, "noise_words", words)


class Chain:
    """A pipe without a model: the logits after a token are a row of ``logits`` [vocab_size, vocab_size]."""

    def __init__(self, logits: Tensor, num_stages: int) -> None:
        self.logits = logits
        self.num_stages = num_stages

    def prefill(self, prompt_ids: list[int], anchors: tuple[int, ...] = ()) -> Tensor:
        return self.logits[prompt_ids[-1]]

    def advance(self, flight: Flight, watch: Stopwatch) -> Finished | None:
        for token in flight.tokens:
            token.depth += 1
        if flight.tokens[0].depth < self.num_stages:
            return None
        finished = flight.finish()
        return Finished(finished, self.logits[finished.token_id])

    def rollback(self, to: int) -> None:
        """There is nothing to forget."""


class FromFlight:
    """A drafter that calls ``proposal(flight)``."""

    def __init__(self, proposal: Callable[[Flight], Proposal]) -> None:
        self.propose = proposal

    def begin(self, pipeline: object, prompt_ids: list[int]) -> None:
        """Nothing to prepare."""

    def rollback(self, to: int) -> None:
        """Nothing to forget."""
