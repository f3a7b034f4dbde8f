"""Traces: saved and read back unchanged, refused when malformed, exported to the Chrome trace format."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_lib.core.perfetto import to_perfetto
from spd_lib.core.simulate import coin_flips, simulate
from spd_lib.core.trace import ORIGINS, STOP_REASONS, Cycle, Span, Stopwatch, Trace, TracedToken, Verdict

uids = st.integers(0, 50)
times = st.floats(0, 1e6, allow_nan=False)
texts = st.none() | st.text(max_size=5)
tokens = st.builds(
    TracedToken, uids, st.sampled_from(ORIGINS), st.none() | uids, st.booleans(), st.none() | uids, texts
)
verdicts = st.builds(Verdict, uids, uids, uids)
spans = st.builds(Span, st.text(max_size=8), times, times)
cycles = st.builds(
    Cycle,
    st.lists(st.lists(uids, max_size=2).map(tuple), max_size=4).map(tuple),
    st.none() | uids,
    st.lists(verdicts, max_size=2).map(tuple),
    st.lists(uids, max_size=3).map(tuple),
    st.lists(spans, max_size=2).map(tuple),
)
notes = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3)
traces = st.builds(
    Trace,
    st.integers(1, 8),
    uids,
    st.lists(tokens, max_size=5).map(tuple),
    st.lists(cycles, max_size=5).map(tuple),
    st.sampled_from(STOP_REASONS),
    notes,
)


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(traces)
def test_json_round_trip(trace: Trace) -> None:
    """Everything comes back, also what equality does not look at, and saving again gives the same text."""
    back = Trace.from_json(trace.to_json())
    assert back == trace
    assert repr(back) == repr(trace)
    assert back.to_json() == trace.to_json()


def saved() -> dict:
    return json.loads(simulate([True, False, True], 2, 4).to_json())


def without(data: dict, key: str) -> dict:
    return {name: value for name, value in data.items() if name != key}


MALFORMED = {
    "no JSON": "spd-trace",
    "empty": "",
    "a list": "[]",
    "a number": "3",
    "another format": json.dumps({**saved(), "format": "other"}),
    "no format": json.dumps(without(saved(), "format")),
    "no cycles": json.dumps(without(saved(), "cycles")),
    "no tokens": json.dumps(without(saved(), "tokens")),
    "no stop reason": json.dumps(without(saved(), "stop_reason")),
    "an unknown key": json.dumps({**saved(), "speed": 3}),
    "an unknown stop reason": json.dumps({**saved(), "stop_reason": "bored"}),
    "an unknown origin": json.dumps({**saved(), "tokens": [{"position": 1, "origin": "guessed"}]}),
    "a cycle without stages": json.dumps({**saved(), "cycles": [without(saved()["cycles"][0], "stages")]}),
    "a cycle that is a number": json.dumps({**saved(), "cycles": [1]}),
    "an unknown key in a token": json.dumps({**saved(), "tokens": [{"position": 1, "origin": "draft", "x": 1}]}),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_json_is_refused(kind: str) -> None:
    """As the docstring says: with a ``ValueError``, whatever is wrong."""
    assert Trace.from_json(json.dumps(saved())) == simulate([True, False, True], 2, 4)
    with pytest.raises(ValueError):
        Trace.from_json(MALFORMED[kind])


def test_equality_is_about_fates_not_about_words() -> None:
    """Ids, texts, guesses, times and notes do not count; a moved token does."""
    trace = simulate([True, False, True], 2, 4)
    dressed = replace(
        trace,
        tokens=tuple(replace(token, token_id=3, text="x", guess=True) for token in trace.tokens),
        cycles=tuple(replace(cycle, spans=(Span("head", 0, 1),)) for cycle in trace.cycles),
        notes={"model": "m"},
    )
    assert dressed == trace
    assert replace(trace, cycles=trace.cycles[:-1]) != trace
    assert replace(trace, stop_reason="eos") != trace
    moved = (replace(trace.tokens[0], position=9), *trace.tokens[1:])
    assert replace(trace, tokens=moved) != trace


def test_fates() -> None:
    """n = 3, the second draft wrong: every fate there is."""
    trace = simulate([True, False, True], 3, 4, budget=9)
    by_fate: dict[str, list[int]] = {}
    for uid, token in enumerate(trace.tokens):
        by_fate.setdefault(trace.fate(uid), []).append(token.position)
    assert by_fate == {
        "committed": [1, 2, 4],
        "rejected": [3],
        "flushed": [4, 5],
        "corrected": [3],
        "unjudged": [5, 6],
    }
    assert [trace.tokens[uid].position for uid in trace.committed] == [1, 2, 3, 4]


def test_with_texts() -> None:
    """Tokens with an id get their text, others keep none."""
    trace = simulate([True], 1, 2)
    named = replace(trace, tokens=(replace(trace.tokens[0], token_id=5), *trace.tokens[1:])).with_texts(str)
    assert [token.text for token in named.tokens] == ["5", *[None] * (len(trace.tokens) - 1)]
    assert trace.tokens[0].text is None


def test_stopwatch() -> None:
    """Pieces in order, each once, none taken twice."""
    watch = Stopwatch()
    for lane in ("draft", "stage 0"):
        with watch.lane(lane):
            pass
    first, second = watch.take()
    assert (first.lane, second.lane) == ("draft", "stage 0")
    assert 0 <= first.start_s <= first.end_s <= second.start_s <= second.end_s
    assert watch.take() == []


def perfetto(trace: Trace) -> tuple[dict[int, str], list[dict]]:
    """Lanes by thread id and the events, read back from JSON text."""
    data = json.loads(json.dumps(to_perfetto(trace)))
    lanes = {event["tid"]: event["args"]["name"] for event in data["traceEvents"] if event["ph"] == "M"}
    return lanes, [event for event in data["traceEvents"] if event["ph"] == "X"]


def test_perfetto_of_a_schedule() -> None:
    """Without times each cycle is a millisecond: one event a busy stage and draft, on its lane."""
    trace = simulate(coin_flips(0.5, seed=1), 3, 9)
    lanes, events = perfetto(trace)
    assert list(lanes.values()) == ["draft", "stage 0", "stage 1", "stage 2", "head", "verify"]
    for index, cycle in enumerate(trace.cycles):
        here = [event for event in events if event["args"]["cycle"] == index + 1]
        busy = {f"stage {stage}" for stage, standing in enumerate(cycle.stages) if standing}
        assert {lanes[event["tid"]] for event in here} == busy | ({"draft"} if cycle.draft is not None else set())
        assert all(event["dur"] == pytest.approx(1000) for event in here)
        assert all(event["ts"] == pytest.approx(1000 * index) for event in here)
        for event in here:
            stage = lanes[event["tid"]].removeprefix("stage ")
            uid = cycle.draft if stage == "draft" else cycle.stages[int(stage)][0]
            assert event["args"]["fate"] == [trace.fate(uid)]
            assert event["name"] == f"position {trace.tokens[uid].position}"


def test_perfetto_of_measured_times() -> None:
    """Measured pieces keep their times, in microseconds, and carry the token's text."""
    trace = simulate([True], 1, 2)
    clock = count()
    lanes_used = ("draft", "stage 0", "head", "verify")
    measured = tuple(Span(lane, start := next(clock) / 1e3, start + 5e-4) for lane in lanes_used)
    tokens_ = tuple(replace(token, text=f"t{uid}") for uid, token in enumerate(trace.tokens))
    lanes, events = perfetto(replace(trace, tokens=tokens_, cycles=(replace(trace.cycles[0], spans=measured),)))
    assert [(lanes[e["tid"]], e["name"]) for e in events] == [
        ("draft", "t1"),
        ("stage 0", "t0"),
        ("head", "t0"),
        ("verify", "t1"),
    ]
    assert [event["ts"] for event in events] == pytest.approx([0, 1000, 2000, 3000])
    assert [event["dur"] for event in events] == pytest.approx([500] * 4)
