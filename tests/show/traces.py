"""Traces that the tests of this folder share."""

from collections.abc import Sequence
from dataclasses import replace

from spd_lib.core import coin_flips, simulate
from spd_lib.core.trace import Trace


def with_texts(trace: Trace, texts: Sequence[str]) -> Trace:
    """``trace`` whose tokens are called by ``texts``, over and over."""
    named = (replace(token, text=texts[uid % len(texts)]) for uid, token in enumerate(trace.tokens))
    return replace(trace, tokens=tuple(named))


def worked_example() -> Trace:
    """Four stages; A is the free first token, c is wrong, C is written instead, then g is right."""
    trace = simulate([True, False, True], num_stages=4, num_tokens=4, budget=40)
    return with_texts(trace, list("AbcdefCghij"))


def random_trace(seed: int, num_stages: int, num_tokens: int = 14) -> Trace:
    """A run whose drafts are right seven times in ten."""
    return simulate(coin_flips(0.7, seed), num_stages, num_tokens, budget=num_tokens + seed % 3, prompt_length=5)
