"""A Trace in the Chrome trace format, for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

from typing import Any

from .trace import Span, Trace

CYCLE_US = 1000.0  # a cycle without measured times is drawn one millisecond long


def _lanes(trace: Trace) -> list[str]:
    return ["draft", *(f"stage {stage}" for stage in range(trace.num_stages)), "head", "verify"]


def _scheduled_spans(trace: Trace, index: int) -> list[Span]:
    """The pieces of a cycle without times: each as long as the cycle."""
    cycle = trace.cycles[index]
    start_s, end_s = index * CYCLE_US / 1e6, (index + 1) * CYCLE_US / 1e6
    lanes = [f"stage {stage}" for stage, uids in enumerate(cycle.stages) if uids]
    if cycle.draft is not None:
        lanes.append("draft")
    return [Span(lane, start_s, end_s) for lane in lanes]


def _working_on(trace: Trace, index: int, lane: str) -> tuple[int, ...]:
    """The tokens (uids) that ``lane`` worked on in cycle ``index``."""
    cycle = trace.cycles[index]
    if lane == "draft":
        return () if cycle.draft is None else (cycle.draft,)
    if lane == "head":
        return tuple(verdict.judge for verdict in cycle.verdicts)
    if lane == "verify":
        return tuple(verdict.judged for verdict in cycle.verdicts)
    return cycle.stages[int(lane.removeprefix("stage "))]


def to_perfetto(trace: Trace) -> dict[str, Any]:
    """Trace → ``{"traceEvents": [...]}``; one thread per lane, times in microseconds.

    Uses the measured spans where a cycle has them, else draws the schedule with cycles of equal length.
    """
    lanes = _lanes(trace)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": lane}}
        for tid, lane in enumerate(lanes)
    ]
    for index, cycle in enumerate(trace.cycles):
        for span in cycle.spans or _scheduled_spans(trace, index):
            uids = _working_on(trace, index, span.lane)
            tokens = [trace.tokens[uid] for uid in uids]
            events.append(
                {
                    "ph": "X",
                    "pid": 0,
                    "tid": lanes.index(span.lane),
                    "ts": span.start_s * 1e6,
                    "dur": (span.end_s - span.start_s) * 1e6,
                    "name": " ".join(token.text or f"position {token.position}" for token in tokens) or span.lane,
                    "args": {"cycle": index + 1, "fate": [trace.fate(uid) for uid in uids]},
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
