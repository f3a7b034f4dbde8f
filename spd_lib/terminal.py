"""What the command line shows: a text as it comes, token by token, and a run in one line."""

from __future__ import annotations

import math
import os
from time import perf_counter
from typing import Any, TextIO

from .core import metrics
from .core.trace import Trace
from .show.palette import terminal


class TokenStream:
    """Writes committed tokens as they come, each in the colour of its origin, and notes when they came.

    A token need not be a whole character: what ends in half a character waits for the rest. ``out=None`` only notes
    times.
    """

    def __init__(self, tokenizer: Any, out: TextIO | None, colour: bool) -> None:
        self._tokenizer, self._out, self._colour = tokenizer, out, colour
        self._ids: list[int] = []
        self._origins: list[str] = []
        self._start, self._shown = 0, 0  # the ids from _start on are decoded, those before _shown are written already
        self._times_s: list[float] = []

    def commit(self, token_id: int, origin: str) -> None:
        """A token was committed; ``origin`` is "prefill", "draft" or "correction"."""
        self._times_s.append(perf_counter())
        self._ids.append(token_id)
        self._origins.append(origin)
        self._write(final=False)

    def end(self) -> None:
        """The text is over."""
        self._write(final=True)
        if self._out is not None:
            self._out.write("\n")
            self._out.flush()

    @property
    def tokens_per_second(self) -> float:
        """Tokens after the first one ÷ wall-clock seconds since then, so without loading and prefill; NaN if none."""
        if len(self._times_s) < 2:
            return float("nan")
        return (len(self._times_s) - 1) / (self._times_s[-1] - self._times_s[0])

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _write(self, final: bool) -> None:
        if self._out is None:
            return
        # Some tokenizers drop a space at the start of a text, so a few written ids are decoded along with the new ones.
        before, now = self._decode(self._ids[self._start : self._shown]), self._decode(self._ids[self._start :])
        text = now[len(before) :]
        if not text or (text.endswith("\N{REPLACEMENT CHARACTER}") and not final):
            return
        corrected = "correction" in self._origins[self._shown :]
        self._out.write(terminal("corrected" if corrected else "committed", text) if self._colour else text)
        self._out.flush()
        self._start, self._shown = self._shown, len(self._ids)


def in_colour(out: TextIO) -> bool:
    """Whether ``out`` is a terminal that shows colours, and nobody has turned them off."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def figures(trace: Trace) -> dict[str, float | None]:
    """The metrics of a run under their names; ``None`` where a text is too short to have one."""
    found = {
        "num_tokens": metrics.num_tokens(trace),
        "num_cycles": metrics.num_cycles(trace),
        "num_judged": metrics.num_judged(trace),
        "num_accepted": metrics.num_accepted(trace),
        "acceptance_rate": metrics.acceptance_rate(trace),
        "tokens_per_cycle": metrics.tokens_per_cycle(trace),
        "equivalent_acceptance_length": metrics.equivalent_acceptance_length(trace),
    }
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def summary(trace: Trace, tokens_per_second: float | None = None, colour: bool = False) -> str:
    """A run in one line; with ``colour`` it begins with what the colours mean."""
    found = figures(trace)

    def show(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    parts = [
        f"N = {found['num_tokens']} tokens",
        f"K = {found['num_cycles']} cycles of {trace.num_stages} stages",
        f"acceptance {show(found['acceptance_rate'])} ({found['num_accepted']} of {found['num_judged']})",
        f"L'_acc = {show(found['equivalent_acceptance_length'])}",
    ]
    if tokens_per_second is not None:
        parts.append(f"{show(None if math.isnan(tokens_per_second) else tokens_per_second)} tokens/s")
    parts.append(f"ended by {trace.stop_reason}")
    if colour:
        parts.insert(0, f"{terminal('committed', 'accepted')} {terminal('corrected', 'corrected')}")
    return " · ".join(parts)
