"""Drafters without weights: a perfect one with errors to order, a random one, and prompt lookup."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import torch

from ..target.flight import Flight
from ..target.pipeline import Pipeline
from .proposal import Proposal


def _point(token_id: int, guess: bool = False) -> Proposal:
    return Proposal(torch.tensor([token_id], device="cpu"), guess=guess)


class Oracle:
    """Knows the text and errs on purpose.

    ``error_rate``: share of positions drafted wrong (0: never, 1: always); ``wrong_at`` names them instead, counted in
    generated tokens from 0. ``text``: the ids that the target will generate; without it the oracle runs the target's
    greedy decoding itself, one plain step a token. With sampling, give the sampled text.
    """

    def __init__(
        self,
        error_rate: float = 0.0,
        *,
        wrong_at: Collection[int] | None = None,
        text: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        if not 0 <= error_rate <= 1:
            raise ValueError(f"error_rate must be between 0 and 1, got {error_rate}")
        self.error_rate = error_rate
        self.wrong_at = None if wrong_at is None else frozenset(wrong_at)
        self.seed = seed
        self._given = None if text is None else list(text)

    def begin(self, pipeline: Pipeline, prompt_ids: list[int]) -> None:
        self._start = len(prompt_ids)
        self._vocab_size = pipeline.decoder.vocab_size
        self._known = [] if self._given is None else self._given
        self._reader: Pipeline | None = None
        if self._given is None:
            self._reader = Pipeline(pipeline.decoder.model, num_stages=1)
            self._known = [int(self._reader.prefill(prompt_ids).argmax())]

    def _truth(self, index: int) -> tuple[int, bool]:
        """The target's generated token number ``index``, and whether that is only a guess (the given text is over)."""
        while self._reader is not None and index >= len(self._known):
            self._known.append(int(self._reader.step(self._known[-1]).argmax()))
        return (self._known[index], False) if index < len(self._known) else (0, True)

    def _errs(self, index: int) -> bool:
        if self.wrong_at is not None:
            return index in self.wrong_at
        return random.Random(f"{self.seed}:{index}").random() < self.error_rate

    def propose(self, flight: Flight) -> Proposal:
        index = flight.next_position - self._start
        token_id, guess = self._truth(index)
        return _point((token_id + self._errs(index)) % self._vocab_size, guess)

    def rollback(self, to: int) -> None:
        """What it knows does not depend on what was drafted."""


class Random:
    """Random logits over the whole vocabulary, the same at the same position for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def begin(self, pipeline: Pipeline, prompt_ids: list[int]) -> None:
        self._ids = torch.arange(pipeline.decoder.vocab_size, device="cpu")

    def propose(self, flight: Flight) -> Proposal:
        source = torch.Generator("cpu").manual_seed((self.seed * 1_000_003 + flight.next_position) % 2**63)
        return Proposal(self._ids, torch.randn(len(self._ids), generator=source, device="cpu"))

    def rollback(self, to: int) -> None:
        """It remembers nothing."""


class PromptLookup:
    """Finds the last place where the newest ``max_ngram`` … 1 tokens stood before and proposes what followed there.

    Falls back on the newest token, marked as a guess.
    """

    def __init__(self, max_ngram: int = 3) -> None:
        if max_ngram < 1:
            raise ValueError(f"max_ngram must be at least 1, got {max_ngram}")
        self.max_ngram = max_ngram

    def begin(self, pipeline: Pipeline, prompt_ids: list[int]) -> None:
        """Everything it needs is in the flight."""

    def propose(self, flight: Flight) -> Proposal:
        ids = flight.ids
        for size in range(min(self.max_ngram, len(ids) - 1), 0, -1):
            suffix = ids[-size:]
            for start in range(len(ids) - size - 1, -1, -1):
                if ids[start] == suffix[0] and ids[start : start + size] == suffix:
                    return _point(ids[start + size])
        return _point(ids[-1], guess=True)

    def rollback(self, to: int) -> None:
        """It remembers nothing."""
