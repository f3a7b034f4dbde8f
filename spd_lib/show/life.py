"""The life of a token in plain words: where it stood, who judged it, what became of it.

Cycles are counted from 1 here, as readers count; a Trace counts them from 0.
"""

from __future__ import annotations

import unicodedata
from functools import cached_property

from spd_lib.core.trace import Trace

VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
LABEL_COLUMNS = 8  # the widest token text in a cell


def visible(text: str) -> str:
    """``text`` with its white space and control characters made visible."""
    return "".join(VISIBLE.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)


def columns(text: str) -> int:
    """How many columns of a fixed-width font ``text`` takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def shorten(text: str, limit: int = LABEL_COLUMNS) -> str:
    """The beginning of ``text`` in at most ``limit`` columns, with … where it was cut."""
    if columns(text) <= limit:
        return text
    while columns(text) > limit - 1:
        text = text[:-1]
    return text + "…"


class Lives:
    """Reads a Trace token by token."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def stays(self) -> dict[int, list[tuple[int, int]]]:
        """uid → the (cycle, stage) pairs in which a stage worked on it; cycle from 1, stage from 0."""
        stays: dict[int, list[tuple[int, int]]] = {uid: [] for uid in range(len(self.trace.tokens))}
        for index, cycle in enumerate(self.trace.cycles):
            for stage, uids in enumerate(cycle.stages):
                for uid in uids:
                    stays[uid].append((index + 1, stage))
        return stays

    @cached_property
    def written(self) -> dict[int, list[int]]:
        """Cycle → uids of the text that it wrote; 0 is the prefill."""
        written: dict[int, list[int]] = {cycle: [] for cycle in range(len(self.trace.cycles) + 1)}
        for uid in self.trace.committed:
            written[self.written_in(uid)].append(uid)
        return written

    @cached_property
    def corrections(self) -> dict[int, int]:
        """uid of a correction → uid of the rejected draft."""
        return {v.committed: v.judged for _, v in self.trace.verdict_of.values() if not v.accepted}

    @cached_property
    def origins(self) -> set[str]:
        """Where the tokens of the run came from."""
        return {token.origin for token in self.trace.tokens}

    def written_in(self, uid: int) -> int:
        """The cycle at whose end a committed token became part of the text; 0 is the prefill."""
        draft = self.corrections.get(uid, uid)
        if draft in self.trace.verdict_of:
            return self.trace.verdict_of[draft][0] + 1
        stays = self.stays[uid]
        return stays[0][0] - 1 if stays else len(self.trace.cycles)

    def label(self, uid: int) -> str:
        """What stands in a cell: the text, shortened and visible, or the position where there is none."""
        token = self.trace.tokens[uid]
        return str(token.position) if token.text is None else shorten(visible(token.text)) or "∅"

    def name(self, uid: int) -> str:
        """How a sentence calls a token."""
        token = self.trace.tokens[uid]
        return f"the token at position {token.position}" if token.text is None else f"'{visible(token.text)}'"

    def sentence(self, uid: int) -> str:
        """The whole life of a token in one line."""
        token = self.trace.tokens[uid]
        who = f"Position {token.position}" if token.text is None else f"{self.name(uid)} (position {token.position})"
        parts = [self._birth(uid), *self._way(uid)]
        return f"{who}: {', '.join(parts)}; {self._end(uid)}."

    def _birth(self, uid: int) -> str:
        token = self.trace.tokens[uid]
        if token.drafted_in is not None:
            guess = " as a mere guess" if token.guess else ""
            return f"drafted in cycle {token.drafted_in + 1}{guess}"
        if token.origin == "prefill":
            return "came free from the prefill"
        if uid in self.corrections:
            return f"written in cycle {self.written_in(uid)} instead of {self.name(self.corrections[uid])}"
        return f"written in cycle {self.written_in(uid)}"

    def _way(self, uid: int) -> list[str]:
        stays = self.stays[uid]
        if not stays:
            return ["entered no stage"]
        first, last = stays[0], stays[-1]
        way = [f"entered stage {first[1]} in cycle {first[0]}"]
        if last[1] == self.trace.num_stages - 1:
            judged = [v.judged for v in self.trace.cycles[last[0] - 1].verdicts if v.judge == uid]
            verdict = f" and judged {' and '.join(map(self.name, judged))}" if judged else ""
            way.append(f"left the last stage in cycle {last[0]}{verdict}")
        return way

    def _end(self, uid: int) -> str:
        fate = self.trace.fate(uid)
        if fate == "flushed":
            cycle = self.trace.flushed_in[uid]
            wrong = next((v.judged for v in self.trace.cycles[cycle].verdicts if not v.accepted), None)
            because = "" if wrong is None else f", because {self.name(wrong)} before it was wrong"
            return f"thrown away unjudged in cycle {cycle + 1}{because}"
        if fate == "unjudged":
            return "not judged before the run ended"
        if uid not in self.trace.verdict_of:
            return "part of the text, the target's own choice"
        cycle, verdict = self.trace.verdict_of[uid]
        if verdict.accepted:
            return f"judged right in cycle {cycle + 1} by {self.name(verdict.judge)}"
        instead = f"{self.name(verdict.committed)} was written instead"
        if self.trace.tokens[verdict.committed].text is None:
            instead = "the target's own choice was written instead"
        return f"judged wrong in cycle {cycle + 1} by {self.name(verdict.judge)}: {instead}"

    def idle_reason(self, cycle: int, stage: int) -> str:
        """Why ``stage`` had no work in ``cycle``.

        Follows the empty slot back to the moment in which it should have got its token.
        """
        if "step" in self.origins:
            return f"Stage {stage} is idle in cycle {cycle}: plain decoding has one token at a time."
        born = cycle - stage - 1  # the cycle whose draft would stand here now
        if born < 1:
            return f"Stage {stage} is idle in cycle {cycle}: the pipe is filling for the first time."
        flush = next((c for c in range(cycle - 1, born - 1, -1) if self.trace.cycles[c - 1].flushed), None)
        if flush is not None:
            return f"Stage {stage} is idle in cycle {cycle}: the pipe fills again after the flush in cycle {flush}."
        return f"Stage {stage} is idle in cycle {cycle}: the text was long enough, no draft was needed."

    def draft_reason(self, cycle: int) -> str:
        """Why nothing was drafted in ``cycle``."""
        if "draft" in self.origins:
            return f"Nothing is drafted in cycle {cycle}: the text was long enough."
        return f"Nothing is drafted in cycle {cycle}: this run has no drafter."
