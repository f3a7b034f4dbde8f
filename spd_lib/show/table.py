"""The pipe grid in characters: for terminals, for text-only readers and for notebooks whose outputs are compared."""

from __future__ import annotations

from collections.abc import Sequence

from spd_lib.core.metrics import acceptance_rate, expected_cycles, num_accepted, num_cycles, num_judged, num_refills
from spd_lib.core.metrics import num_tokens as count_tokens
from spd_lib.core.trace import Trace

from .life import Lives, columns
from .palette import style

LEGEND = (
    ("committed", "committed"),
    ("corrected", "correction"),
    ("rejected", "judged wrong"),
    ("flushed", "flushed"),
    ("unjudged", "not judged"),
)


def cycle_formula(trace: Trace) -> str | None:
    """K = n + (N − 2) + (n − 1)·R with the numbers of the run; ``None`` where the formula does not speak of the run.

    It speaks of whole texts of at least two tokens, decoded with one token a stage.
    """
    stages, tokens, refills = trace.num_stages, count_tokens(trace), num_refills(trace)
    alone = all(len(uids) <= 1 for cycle in trace.cycles for uids in cycle.stages)
    if not alone or tokens < 2 or expected_cycles(stages, tokens, refills) != num_cycles(trace):
        return None
    return (
        f"K = n + (N − 2) + (n − 1)·R = {stages} + {tokens - 2} + {stages - 1}·{refills}"
        f" = {expected_cycles(stages, tokens, refills)}"
    )


def counts(trace: Trace) -> str:
    """The counts of a run in one line."""
    judged = num_judged(trace)
    rate = f", acceptance rate {acceptance_rate(trace):.2f}" if judged else ""
    return (
        f"stages n = {trace.num_stages}, tokens N = {count_tokens(trace)}, cycles K = {num_cycles(trace)}, "
        f"refills R = {num_refills(trace)}; {num_accepted(trace)} of {judged} judged drafts right{rate}"
    )


def shown_cycles(trace: Trace, max_cycles: int | None) -> tuple[int, str]:
    """How many cycles are drawn, and a sentence about the rest (empty if there is none)."""
    total = len(trace.cycles)
    if max_cycles is not None and max_cycles < 1:
        raise ValueError(f"max_cycles must be at least 1, got {max_cycles}")
    shown = total if max_cycles is None else min(total, max_cycles)
    rest = f"The first {shown} of {total} cycles; {total - shown} more are not drawn." if shown < total else ""
    return shown, rest


def _mark(trace: Trace, lives: Lives, uid: int) -> str:
    fate = trace.fate(uid)
    return lives.label(uid) + ("" if fate == "committed" else style(fate).glyph)


def _column(trace: Trace, lives: Lives, index: int) -> list[str]:
    """One cycle from top to bottom: number, draft, stages, verdict, text."""
    cycle = trace.cycles[index]
    stages = [" ".join(_mark(trace, lives, uid) for uid in uids) or style("idle").glyph for uids in cycle.stages]
    draft = style("idle").glyph if cycle.draft is None else _mark(trace, lives, cycle.draft)
    verdicts = "".join(style("committed" if v.accepted else "rejected").glyph for v in cycle.verdicts)
    written = " ".join(_mark(trace, lives, uid) for uid in lives.written[index + 1])
    return [str(index + 1), draft, *stages, verdicts, written]


def _block(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(columns, column)) for column in table]

    def line(row: Sequence[str]) -> str:
        padded = (cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        return "  ".join(padded).rstrip()

    return [line(row) for row in zip(*table, strict=True)]


def _blocks(names: list[str], table: list[list[str]], width: int) -> list[str]:
    """The table in pieces that are at most ``width`` characters wide, each with the row names in front."""
    lines: list[str] = []
    while table:
        take = 1
        while take < len(table) and columns(max(_block([names, *table[: take + 1]]), key=columns)) <= width:
            take += 1
        lines += ([""] if lines else []) + _block([names, *table[:take]])
        table = table[take:]
    return lines


def pipe_text(trace: Trace, max_cycles: int | None = None, width: int = 100) -> str:
    """The pipe of ``trace`` as a table of characters: stages down, cycles across, wrapped at ``width`` columns.

    A committed token stands alone; every other one has a mark behind it, which the legend explains.
    """
    lives = Lives(trace)
    shown, rest = shown_cycles(trace, max_cycles)
    free = " ".join(_mark(trace, lives, uid) for uid in lives.written[0])
    names = ["cycle", "draft", *(f"stage {stage}" for stage in range(trace.num_stages)), "verdict", "text"]
    prefill = ["0", *[""] * (len(names) - 2), free]
    lines = _blocks(names, [prefill, *(_column(trace, lives, index) for index in range(shown))], width)
    marks = ", ".join(f"x{style(fate).glyph} {word}" for fate, word in LEGEND[1:])
    legend = f"x committed, {marks}, {style('idle').glyph} idle; cycle 0 is the prefill"
    return "\n".join([*lines, "", *filter(None, [rest, legend, counts(trace), cycle_formula(trace)])])
