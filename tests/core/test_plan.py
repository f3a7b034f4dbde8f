"""Plans: contiguous, complete, and the balanced one is the best there is."""

from __future__ import annotations

from itertools import combinations

import pytest

from spd_lib.core.plan import Plan, balanced, even, make_plan

SMOLLM2_LAYERS, SMOLLM2_HEAD = 30, 8
HEADS = (0, 0.4, 1, 2.5, 8, 40)


def sound(plan: Plan, num_layers: int, num_stages: int) -> None:
    """Every layer belongs to exactly one stage, in order; only the last stage may be empty."""
    assert (plan.num_layers, plan.num_stages) == (num_layers, num_stages)
    assert [layer for stage in range(num_stages) for layer in plan.layers(stage)] == list(range(num_layers))
    assert all(plan.counts[:-1]) or num_stages == 1
    assert [plan.layers_passed(depth) for depth in range(num_stages + 1)] == list(plan.boundaries)
    assert [len(plan.layers(stage)) for stage in range(num_stages)] == list(plan.counts)


def every_plan(num_layers: int, num_stages: int) -> list[Plan]:
    """All contiguous cuts that a plan may make, the last stage empty or not."""
    cuts = combinations(range(1, num_layers), num_stages - 1)
    plans = [Plan((0, *cut, num_layers)) for cut in cuts]
    if num_stages > 1:
        short = combinations(range(1, num_layers), num_stages - 2)
        plans += [Plan((0, *cut, num_layers, num_layers)) for cut in short]
    return plans


@pytest.mark.parametrize("num_layers", range(1, 41))
def test_every_number_of_stages_works(num_layers: int) -> None:
    """From 1 to L, nothing has to divide anything; even shares differ by one at most."""
    for num_stages in range(1, num_layers + 1):
        plan = even(num_layers, num_stages)
        sound(plan, num_layers, num_stages)
        assert max(plan.counts) - min(plan.counts) <= 1
        for head in HEADS:
            better = balanced(num_layers, num_stages, head)
            sound(better, num_layers, num_stages)
            assert better.cycle_cost(head) <= plan.cycle_cost(head)
            assert better.effective_stages(head) == (num_layers + head) / better.cycle_cost(head)


@pytest.mark.parametrize("num_layers", range(1, 9))
def test_balanced_is_the_best_of_all_cuts(num_layers: int) -> None:
    """Against every cut there is; among equals it leaves the last stage the most layers."""
    for num_stages in range(1, num_layers + 1):
        for head in HEADS:
            plans = every_plan(num_layers, num_stages)
            least = min(plan.cycle_cost(head) for plan in plans)
            found = balanced(num_layers, num_stages, head)
            assert found.cycle_cost(head) == least
            assert found.counts[-1] == max(plan.counts[-1] for plan in plans if plan.cycle_cost(head) == least)


@pytest.mark.parametrize("num_stages", range(5, 31))
def test_no_plan_of_smollm2_beats_the_head(num_stages: int) -> None:
    """Its head weighs 8 of 38 units and is one block: 38 ÷ 8 = 4.75 from five stages on."""
    assert balanced(SMOLLM2_LAYERS, num_stages, SMOLLM2_HEAD).effective_stages(SMOLLM2_HEAD) == 4.75


@pytest.mark.parametrize(("num_stages", "effective"), [(4, 2.5), (8, 3.5), (16, 4.2)])
def test_even_plans_of_smollm2(num_stages: int, effective: float) -> None:
    """The last stage has its layers and the head to do."""
    found = even(SMOLLM2_LAYERS, num_stages).effective_stages(SMOLLM2_HEAD)
    assert round(found, 1) == effective


def test_without_a_head_the_limit_is_the_number_of_stages() -> None:
    assert even(30, 5).effective_stages(0) == 5


@pytest.mark.parametrize("boundaries", [(), (0,), (1, 3), (0, 3, 2), (0, 0, 3), (0, 2, 2, 3), (0, 0), (0, 3, 3, 3)])
def test_malformed_boundaries(boundaries: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Plan(boundaries)


@pytest.mark.parametrize(("num_layers", "num_stages"), [(0, 1), (5, 0), (5, 6), (-1, 1)])
def test_impossible_numbers_of_stages(num_layers: int, num_stages: int) -> None:
    for make in (even, lambda layers, stages: balanced(layers, stages, 1)):
        with pytest.raises(ValueError):
            make(num_layers, num_stages)


def test_negative_head_cost() -> None:
    with pytest.raises(ValueError, match="negative"):
        balanced(5, 2, -1)


def test_make_plan() -> None:
    """Names, layers per stage, plans; whatever does not fit is refused with the numbers."""
    assert make_plan("even", 6, 4, 1) == even(6, 4)
    assert make_plan("balanced", 6, 4, 1) == balanced(6, 4, 1)
    assert make_plan([1, 2, 3], 6, 3, 1).boundaries == (0, 1, 3, 6)
    assert make_plan(even(6, 2), 6, 2, 1) == even(6, 2)
    for plan, message in [("other", "even, balanced"), ([1, 2], "covers 3"), ([3, 3], "has 2 stages"), ([], "stage")]:
        with pytest.raises(ValueError, match=message):
            make_plan(plan, 6, 3, 1)
