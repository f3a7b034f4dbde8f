"""Greedy decoding on tiny models: token for token what the model writes alone, cycle for cycle what the rules say."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..families import FAMILIES, WINDOW, WINDOWED, num_layers
from .cases import DRAFTERS, NEW_TOKENS, Case, check, expected_text

EXAMPLES_PER_FAMILY = 220
LEAST_CASES = 2_000
ran: Counter[str] = Counter()

depths = [(family, num_stages) for family in FAMILIES for num_stages in range(1, num_layers(family) + 1)]


def checked(case: Case, kind: str):
    """Checks a case and counts it."""
    trace = check(case)
    ran[kind] += 1
    return trace


def random_cut(family: str, num_stages: int, seed: int) -> tuple[int, ...]:
    """Layers per stage at random; the last stage may get none."""
    source, total = random.Random(f"{family}:{num_stages}:{seed}"), num_layers(family)
    if num_stages == 1:
        return (total,)
    inner = sorted(source.sample(range(1, total), num_stages - 2))
    last = source.randint(inner[-1] + 1 if inner else 1, total)
    ends = [0, *inner, last, total]
    return tuple(b - a for a, b in zip(ends, ends[1:], strict=False))


def plans(family: str, num_stages: int, seed: int) -> list[str | tuple[int, ...]]:
    return ["even", "balanced", random_cut(family, num_stages, seed)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_texts_are_worth_comparing(family: str) -> None:
    """Of twelve tokens six are different on average, and no text is one token over and over."""
    kinds = [len(set(expected_text(Case(family, 1, "even", (), length, 1)))) for length in range(1, 21)]
    assert min(kinds) >= 2
    assert sum(kinds) / len(kinds) >= 6


@pytest.mark.parametrize(("family", "num_stages"), depths)
def test_every_drafter_on_every_plan(family: str, num_stages: int) -> None:
    """Whatever is drafted and however the model is cut, with a prompt of one token and one beyond the window."""
    for length in (1, 2 * WINDOW):
        for plan in plans(family, num_stages, length):
            for drafter in DRAFTERS:
                checked(Case(family, num_stages, plan, drafter, length), "every drafter")


@pytest.mark.parametrize(("family", "num_stages"), depths)
def test_one_rejection_at_each_position(family: str, num_stages: int) -> None:
    """A single wrong draft, at each place it can stand: exactly that token is corrected, all others accepted."""
    for index in range(1, NEW_TOKENS):
        plan = plans(family, num_stages, index)[index % 3]
        trace = checked(Case(family, num_stages, plan, (index,), 7, index), "one rejection")
        fates = [trace.fate(uid) for uid in trace.committed]
        assert fates == ["corrected" if place == index else "committed" for place in range(NEW_TOKENS)]


@pytest.mark.parametrize("family", FAMILIES)
def test_two_rejections_one_after_the_other(family: str) -> None:
    """The second comes while the pipe still fills, or just after."""
    for num_stages in range(1, num_layers(family) + 1):
        for gap in range(1, 5):
            checked(Case(family, num_stages, "even", (3, 3 + gap), 5, gap), "two rejections")


@pytest.mark.parametrize("family", FAMILIES)
def test_end_of_sequence_at_each_position(family: str) -> None:
    """Each token of a text in turn is declared the end: the text stops there, wherever in the pipe the drafts are."""
    for num_stages in range(1, num_layers(family) + 1):
        for index in range(0, NEW_TOKENS, 2):
            plain = Case(family, num_stages, "even", (), 4, num_stages)
            eos = (expected_text(plain)[index],)
            drafter: tuple[int, ...] = (index,) if index % 4 else ()
            checked(Case(family, num_stages, "even", drafter, 4, num_stages, eos=eos), "end of sequence")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_budget(family: str) -> None:
    """``max_new_tokens`` from one token on, smaller and larger than the pipe is long."""
    for count in range(1, NEW_TOKENS + 1):
        num_stages = 1 + count % num_layers(family)
        checked(Case(family, num_stages, "even", "oracle .3", 3, count, count=count), "every budget")


@pytest.mark.parametrize("family", WINDOWED)
def test_far_beyond_the_window(family: str) -> None:
    """Prompt and text together are five windows long."""
    for num_stages in range(1, num_layers(family) + 1):
        for drafter in DRAFTERS:
            case = Case(family, num_stages, "even", drafter, 3 * WINDOW, 9, count=NEW_TOKENS)
            checked(case, "beyond the window")


@pytest.mark.parametrize("family", FAMILIES)
def test_anything(family: str) -> None:
    """Depth, cut, prompt, errors, budget and end drawn at random."""
    layers = num_layers(family)

    @settings(max_examples=EXAMPLES_PER_FAMILY, derandomize=True, deadline=None, database=None)
    @given(
        num_stages=st.integers(1, layers),
        cut=st.integers(0, 40),
        errors=st.one_of(st.sets(st.integers(1, NEW_TOKENS), max_size=NEW_TOKENS), st.sampled_from(list(DRAFTERS))),
        length=st.integers(1, 20),
        seed=st.integers(0, 9),
        count=st.integers(1, NEW_TOKENS),
        end=st.none() | st.integers(0, NEW_TOKENS - 1),
    )
    def anything(num_stages, cut, errors, length, seed, count, end) -> None:
        drafter = errors if isinstance(errors, str) else tuple(sorted(errors))
        plan = plans(family, num_stages, cut)[cut % 3]
        case = Case(family, num_stages, plan, drafter, length, seed, count)
        text = expected_text(case)
        eos = () if end is None or end >= len(text) else (text[end],)
        checked(Case(family, num_stages, plan, drafter, length, seed, count, eos), "anything")

    anything()


def test_number_of_cases(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    """How many cases the tests above have checked; meaningful only when all of them ran."""
    here = [item for item in request.session.items if item.path == request.path]
    if len(here) < 3 * len(FAMILIES) + 2 * len(depths):
        pytest.skip("only some of the tests of this file were asked for")
    with capsys.disabled():
        print(f"\nlosslessness on tiny models: {ran.total()} cases ({', '.join(f'{k} {v}' for k, v in ran.items())})")
    assert ran.total() >= LEAST_CASES
    assert ran["anything"] >= EXAMPLES_PER_FAMILY * len(FAMILIES)
