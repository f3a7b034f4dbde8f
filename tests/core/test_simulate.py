"""The simulator: the worked trace of the method, the cycle count formula, and what it refuses."""

from __future__ import annotations

from itertools import islice, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_lib.core import metrics, staircase
from spd_lib.core.simulate import coin_flips, simulate
from spd_lib.core.trace import Trace

# Method, §1.6: n = 4; upper case committed, lower case speculative, stage 0 on the left; cycle by cycle what stands in
# the stages, what is drafted, which token judges which, what is flushed.
LETTERS = {"A": 1, "B": 2, "C": 3, "D": 4, "E": 5, "F": 6, "G": 4, "H": 5, "I": 6, "J": 7}
WORKED = [
    ("A...", "b", "", ""),
    ("bA..", "c", "", ""),
    ("cbA.", "d", "", ""),
    ("dcbA", "e", "A>b+", ""),
    ("edcB", "f", "B>c-", "cdef"),
    ("C...", "g", "", ""),
    ("gC..", "h", "", ""),
    ("hgC.", "i", "", ""),
    ("ihgC", "j", "C>g+", ""),
]


def test_worked_trace_cell_by_cell() -> None:
    """Nine cycles, one rejection; G comes four cycles after the correction C'."""
    trace = simulate([True, False, True], num_stages=4, num_tokens=4, budget=99)
    names = dict(enumerate("ABCDEF", start=0))  # uids in the order of drawing: A, b, c, d, e, f ...
    correction = len(names)
    names |= {correction: "C", **dict(enumerate("GHIJ", start=correction + 1))}
    assert len(names) == len(trace.tokens)
    assert [trace.tokens[uid].position for uid in names] == [LETTERS[letter] for letter in names.values()]
    assert (trace.tokens[0].origin, trace.tokens[correction].origin) == ("prefill", "correction")
    for (stages, draft, judged, flushed), cycle in zip(WORKED, trace.cycles, strict=True):
        found = "".join(names[standing[0]] if standing else "." for standing in cycle.stages)
        assert found == stages.upper()
        assert names[cycle.draft] == draft.upper()
        assert [f"{names[v.judge]}>{names[v.judged].lower()}{'+' if v.accepted else '-'}" for v in cycle.verdicts] == (
            [judged] if judged else []
        )
        assert "".join(names[uid] for uid in cycle.flushed) == flushed.upper()
    assert "".join(names[uid] for uid in trace.committed) == "ABCG"
    assert metrics.num_refills(trace) == 1
    assert metrics.num_cycles(trace) == metrics.expected_cycles(4, 4, 1) == 9
    assert round(metrics.equivalent_acceptance_length(trace), 2) == 1.78


runs = {
    "num_stages": st.integers(1, 12),
    "num_tokens": st.integers(1, 40),
    "spare": st.integers(0, 15),
    "flags": st.lists(st.booleans(), min_size=40, max_size=40),
    "prompt_length": st.integers(1, 30),
}


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(**runs)
def test_rules_of_the_cycle(
    num_stages: int, num_tokens: int, spare: int, flags: list[bool], prompt_length: int
) -> None:
    """Whatever is right or wrong: the formula for K and every rule that the method states."""
    budget = num_tokens + spare
    trace = simulate(flags, num_stages, num_tokens, budget=budget, prompt_length=prompt_length)
    assert trace.stop_reason == ("eos" if spare else "budget")
    assert metrics.num_tokens(trace) == num_tokens
    assert metrics.num_cycles(trace) == metrics.expected_cycles(num_stages, num_tokens, metrics.num_refills(trace))
    places = [trace.tokens[uid].position for uid in trace.committed]
    assert places == list(range(prompt_length, prompt_length + num_tokens))
    judged = [verdict.accepted for cycle in trace.cycles for verdict in cycle.verdicts]
    assert judged == flags[: num_tokens - 1]
    last = prompt_length + budget - 1
    assert max(token.position for token in trace.tokens) <= last
    for cycle in trace.cycles:
        standing = [trace.tokens[uid].position for stage in cycle.stages for uid in stage]
        assert standing and standing == sorted(standing, reverse=True)
        if cycle.stages[0]:
            newest, fill = standing[0], len(standing)
            expected = staircase.standing(newest, fill, num_stages)
            found = tuple(trace.tokens[stage[0]].position if stage else None for stage in cycle.stages)
            assert found == expected
            assert (cycle.draft is None) == (newest == last)
            if cycle.draft is not None:
                assert trace.tokens[cycle.draft].position == staircase.drafted_position(newest)
        else:
            assert cycle.draft is None
        for verdict in cycle.verdicts:
            judge, other = trace.tokens[verdict.judge].position, trace.tokens[verdict.judged].position
            assert cycle.stages[-1] == (verdict.judge,)
            assert other == staircase.judged_position(judge)
            assert verdict.judge in trace.committed
            assert bool(cycle.flushed) is not verdict.accepted
        assert bool(cycle.verdicts) is bool(cycle.stages[-1])


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(num_stages=st.integers(1, 12), wrong=st.integers(0, 20))
def test_a_flush_costs_two_triangles(num_stages: int, wrong: int) -> None:
    """One rejection in a full pipe wastes n(n − 1)/2 stage slots and leaves as many idle."""
    count = wrong + 2 + 3 * num_stages
    flags = [index != wrong for index in range(count)]
    good = simulate(repeat(True), num_stages, count, budget=count + num_stages)
    bad = simulate(flags, num_stages, count, budget=count + num_stages)

    def slots(trace: Trace, *fates: str) -> int:
        return sum(trace.fate(uid) in fates for cycle in trace.cycles for stage in cycle.stages for uid in stage)

    triangle = staircase.flush_triangle(num_stages)
    assert slots(bad, "rejected", "flushed") == triangle
    idle = [sum(not stage for cycle in trace.cycles for stage in cycle.stages) for trace in (good, bad)]
    assert idle[1] - idle[0] == triangle == sum(staircase.undone_steps(s, num_stages) for s in range(num_stages))


def test_refusals() -> None:
    """Too few flags, impossible sizes, an impossible acceptance."""
    with pytest.raises(ValueError, match="flags ran out"):
        simulate([True], 2, 4)
    for arguments in ({"num_stages": 0, "num_tokens": 1}, {"num_stages": 1, "num_tokens": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            simulate([], **arguments)
    with pytest.raises(ValueError, match="budget 2 is smaller"):
        simulate([True] * 9, 2, 3, budget=2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        next(coin_flips(1.5))


def test_coin_flips() -> None:
    """Reproducible, and as often right as asked for, within three standard deviations."""
    flips = list(islice(coin_flips(0.6, seed=3), 10_000))
    assert flips == list(islice(coin_flips(0.6, seed=3), 10_000))
    assert flips != list(islice(coin_flips(0.6, seed=4), 10_000))
    assert abs(sum(flips) / 10_000 - 0.6) < 3 * (0.24 / 10_000) ** 0.5
