"""Three numbers that everybody confuses, by hand and in the limit; and the arithmetic of the pipe."""

from __future__ import annotations

import math
from itertools import repeat

import pytest

from spd_lib.core import metrics, staircase
from spd_lib.core.plan import even
from spd_lib.core.simulate import coin_flips, simulate


def test_by_hand() -> None:
    """n = 4, flags right, wrong, right: 3 judged, 2 accepted, 4 tokens in 9 cycles."""
    trace = simulate([True, False, True], 4, 4)
    assert (metrics.num_tokens(trace), metrics.num_cycles(trace)) == (4, 9)
    assert (metrics.num_judged(trace), metrics.num_accepted(trace)) == (3, 2)
    assert metrics.acceptance_rate(trace) == 2 / 3
    assert metrics.tokens_per_cycle(trace) == 4 / 9
    assert metrics.equivalent_acceptance_length(trace) == 16 / 9


def test_a_text_of_one_token() -> None:
    """No cycle, nothing judged: ratios are not numbers."""
    trace = simulate([], 4, 1)
    assert (metrics.num_tokens(trace), metrics.num_cycles(trace)) == (1, 0)
    assert math.isnan(metrics.acceptance_rate(trace))
    assert math.isnan(metrics.tokens_per_cycle(trace))
    assert math.isnan(metrics.equivalent_acceptance_length(trace))


@pytest.mark.parametrize(
    ("flags", "refills"), [([], 0), ([False], 0), ([True, False], 0), ([False, True], 1), ([False, False, False], 2)]
)
def test_a_correction_at_the_very_end_refills_nothing(flags: list[bool], refills: int) -> None:
    """R counts corrections among tokens 2 … N − 1."""
    trace = simulate(flags, 3, len(flags) + 1)
    assert metrics.num_refills(trace) == refills
    assert metrics.num_cycles(trace) == metrics.expected_cycles(3, len(flags) + 1, refills)


@pytest.mark.parametrize(
    ("num_stages", "num_tokens", "num_refills", "cycles"),
    [(4, 0, 0, 0), (4, 1, 0, 0), (4, 2, 0, 4), (4, 4, 1, 9), (1, 10, 5, 9), (8, 100, 0, 106), (8, 100, 98, 792)],
)
def test_expected_cycles(num_stages: int, num_tokens: int, num_refills: int, cycles: int) -> None:
    assert metrics.expected_cycles(num_stages, num_tokens, num_refills) == cycles


@pytest.mark.parametrize("num_stages", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_long_texts_reach_the_expected_speedup(acceptance: float, num_stages: int) -> None:
    """n·N/K tends to 1/((1 − p) + p/n): exactly with the acceptance that was met, to 3 % with the one asked for."""
    trace = simulate(coin_flips(acceptance, seed=5), num_stages, 4_000)
    found = metrics.equivalent_acceptance_length(trace)
    assert found == pytest.approx(metrics.expected_speedup(metrics.acceptance_rate(trace), num_stages), rel=0.005)
    assert found == pytest.approx(metrics.expected_speedup(acceptance, num_stages), rel=0.03)


def test_short_texts_slightly_exceed_the_limit() -> None:
    """The free first token: nothing right, and still more than one token per full pass."""
    short, long = (metrics.equivalent_acceptance_length(simulate(repeat(False), 4, count)) for count in (8, 800))
    assert short > long > metrics.expected_speedup(0, 4) == 1


def test_speedup_has_floor_and_ceiling() -> None:
    """1 at p = 0, n at p = 1, below 1/(1 − p) in between, rising with n."""
    assert [metrics.expected_speedup(0.0, n) for n in (1, 4, 16)] == [1, 1, 1]
    assert [metrics.expected_speedup(1.0, n) for n in (1, 4, 16)] == [1, 4, 16]
    speedups = [metrics.expected_speedup(0.8, n) for n in (1, 2, 4, 8, 16, 1_000_000)]
    assert speedups == sorted(speedups)
    assert [round(speedup, 2) for speedup in speedups[2:5]] == [2.5, 3.33, 4.0]
    assert speedups[-1] == pytest.approx(5, rel=1e-4)


def test_staircase() -> None:
    """Who stands where while the pipe fills and when it is full, and how much of each token a drafter knows."""
    assert staircase.standing(newest=7, fill=2, num_stages=4) == (7, 6, None, None)
    assert staircase.standing(newest=7, fill=4, num_stages=4) == (7, 6, 5, 4)
    filling = [staircase.depth_of(query=7, key=key, fill=2, num_stages=4) for key in (7, 6, 5, 4, 0)]
    assert filling == [0, 1, 4, 4, 4]
    full = [staircase.depth_of(query=7, key=key, fill=4, num_stages=4) for key in (7, 6, 5, 4, 3, 0)]
    assert full == [0, 1, 2, 3, 4, 4]
    anchors = (0, 3, 5, 8, 10)
    assert [staircase.anchors_passed(anchors, layers) for layers in range(11)] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4]
    assert staircase.row_kinds(even(10, 4), anchors, fill=4) == (0, 1, 2, 3)  # 0, 3, 6 and 8 layers
    assert staircase.row_kinds(even(10, 4), anchors, fill=2) == (0, 1)
    assert staircase.row_kinds(even(10, 2), anchors, fill=9) == (0, 2)
    with pytest.raises(ValueError, match="future"):
        staircase.depth_of(query=7, key=8, fill=2, num_stages=4)


def test_triangles() -> None:
    """In a full pipe stage s undoes n − 1 − s steps, n(n − 1)/2 in all (method, §1.6: 3, 2, 1, 0)."""
    assert [staircase.undone_steps(stage, 4) for stage in range(4)] == [3, 2, 1, 0]
    assert [staircase.flush_triangle(n) for n in (1, 2, 4, 8)] == [0, 1, 6, 28]
