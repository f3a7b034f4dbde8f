"""The checkers let right answers pass and tell typical wrong ones what is wrong, without giving the answer."""

from collections.abc import Callable

import pytest

from spd_lib.core.plan import even
from spd_lib.core.staircase import standing
from spd_lib.show.checks import check_cycles, check_kinds, check_plan, check_rejection, check_standing


def said(capsys: pytest.CaptureFixture, check: Callable, answer: Callable) -> str:
    assert check(answer) is None
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 76, "fits a page"
    return " ".join(lines)


def smaller_first(layers: int, stages: int) -> list[int]:
    return sorted(even(layers, stages).counts)


def rest_last(layers: int, stages: int) -> list[int]:
    return [layers // stages] * (stages - 1) + [layers // stages + layers % stages]


PLANS = [
    (lambda n_layers, n: even(n_layers, n).counts, "✓ check_plan: right for every n from 1 to L"),
    (smaller_first, "For 3 layers in 2 stages, your plan is [1, 2]. The shares are even, but the larger ones should"),
    (rest_last, "your plan is [1, 2]. The shares are even"),
    (lambda n_layers, n: [n_layers // n] * n, "For 3 layers in 2 stages, your plan is [1, 1]. It places 2 layers."),
    (lambda n_layers, n: [n_layers / n] * n, "A stage owns a whole number of layers."),
    (lambda n_layers, n: [1] * n_layers, "It has 2 stages."),
    (lambda n_layers, n: [n_layers - n + 1] + [1] * (n - 1), "The largest stage has 2 layers more than the smallest."),
    (lambda n_layers, n: None, "For 1 layers in 1 stages, your function returns nothing. Is a return missing?"),
    (lambda n_layers, n: 3, "your function returns 3, which is not a list."),
    (lambda n_layers, n: 1 / 0, "your function stops with ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(("answer", "expected"), PLANS)
def test_plan(capsys: pytest.CaptureFixture, answer: Callable, expected: str) -> None:
    line = said(capsys, check_plan, answer)
    assert expected in line
    assert line.startswith("✓" if "✓" in expected else "✗ check_plan: ")


def right_cycles(n: int, tokens: int, refills: int) -> int:
    return n + (tokens - 2) + (n - 1) * refills if tokens > 1 else 0


CYCLES = [
    (right_cycles, "✓ check_cycles: equal to the simulator in 360 runs."),
    (
        lambda n, t, r: n + t - 2 + (n - 1) * r,
        "For n = 2, N = 1, R = 0, you say 1, the simulator counts 0 cycles. Where",
    ),
    (lambda n, t, r: right_cycles(n, t, r) + (t > 1), "How many cycles pass before the first judgement"),
    (lambda n, t, r: right_cycles(n, t, 0) + n * r, "You are right as long as no draft is wrong."),
    (lambda n, t, r: n * t, "How many cycles pass before the first judgement"),
    (lambda n, t, r: None, "Is a return missing?"),
]


@pytest.mark.parametrize(("answer", "expected"), CYCLES)
def test_cycles(capsys: pytest.CaptureFixture, answer: Callable, expected: str) -> None:
    assert expected in said(capsys, check_cycles, answer)


STANDING = [
    (standing, "✓ check_standing: right for every n up to 8 and every fill."),
    (lambda newest, fill, n: list(standing(newest, fill, n))[::-1], "Which token has just entered stage 0?"),
    (
        lambda newest, fill, n: [newest - s for s in range(n)],
        "With 1 tokens in flight, how many of the 2 stages are idle?",
    ),
    (lambda newest, fill, n: [newest + s if s < fill else None for s in range(n)], "Look at stage 1"),
    (lambda newest, fill, n: [newest - s for s in range(fill)], "There should be one entry for each stage."),
    (lambda newest, fill: [], "your function stops with TypeError"),
]


@pytest.mark.parametrize(("answer", "expected"), STANDING)
def test_standing(capsys: pytest.CaptureFixture, answer: Callable, expected: str) -> None:
    assert expected in said(capsys, check_standing, answer)


def right_kinds(anchors: list[int], boundaries: list[int], fill: int) -> list[int]:
    return [sum(anchor <= boundaries[depth] for anchor in anchors) - 1 for depth in range(fill)]


KINDS = [
    (right_kinds, "✓ check_kinds: right for every n, every fill, and three sets of anchors."),
    (lambda a, b, fill: [0] * (fill + 1), "How many tokens can be in flight?"),
    (lambda a, b, fill: [0] * fill, "Look at place 1: its token has passed 15 layers."),
    (lambda a, b, fill: right_kinds(a, b, fill)[::-1], "you say [3, 0]. Look at place 0"),
    (lambda a, b, fill: [a[kind] for kind in right_kinds(a, b, fill)], "Which anchor is its deepest?"),
    (lambda a, b, fill: None, "Is a return missing?"),
    (lambda a, b, fill: 0, "which is not a list"),
    (lambda a, b: [], "your function stops with TypeError"),
]


@pytest.mark.parametrize(("answer", "expected"), KINDS)
def test_kinds(capsys: pytest.CaptureFixture, answer: Callable, expected: str) -> None:
    assert expected in said(capsys, check_kinds, answer)


Lists = list[float]


def residual(p: Lists, q: Lists) -> Lists:
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    return [share / sum(left) for share in left] if sum(left) else list(p)


def textbook(p: Lists, q: Lists, draft: int, u: float) -> tuple[bool, Lists]:
    return u < min(1, p[draft] / q[draft]), residual(p, q)


def lazy(p: Lists, q: Lists, draft: int, u: float) -> tuple[bool, Lists | None]:
    """Computes the residual only where it is needed."""
    accepted = u * q[draft] <= p[draft]
    return accepted, None if accepted else residual(p, q)


RULES = [
    (textbook, "✓ check_rejection: the output follows P in all 7 pairs, with the highest acceptance."),
    (lazy, "✓ check_rejection"),
    (lambda p, q, d, u: (textbook(p, q, d, u)[0], p), "look at what is drawn after a rejection"),
    (lambda p, q, d, u: (u < min(1, q[d] / max(p[d], 1e-9)), residual(p, q)), "compare with how much P and Q have"),
    (lambda p, q, d, u: (u < p[d], residual(p, q)), "compare with how much P and Q have in common"),
    (lambda p, q, d, u: (True, None), "You accept 1.00 of the drafts"),
    (lambda p, q, d, u: (False, p), "the output has the right law, but you accept 0.00 of the drafts"),
    (lambda p, q, d, u: (textbook(p, q, d, u)[0], [max(a - b, 0) for a, b in zip(p, q, strict=True)]), "not to 1"),
    (lambda p, q, d, u: (False, [a - b for a, b in zip(p, q, strict=True)]), "a negative probability: -0.3"),
    (lambda p, q, d, u: (u < p[d] / q[d], [float("nan")] * len(p)), "the residual is [nan, nan, nan]"),
    (lambda p, q, d, u: (False, [1.0]), "the residual has 1 entries for 3 tokens"),
    (lambda p, q, d, u: (False, None), "returns None, which is not a list"),
    (lambda p, q, d, u: True, "which is not a list"),
    (lambda p, q, d, u: (True,), "should return two things"),
    (lambda p, q, d, u: (u < p[d] / q[d], [a / 0 for a in p]), "ZeroDivisionError"),
]


@pytest.mark.parametrize(("answer", "expected"), RULES)
def test_rejection(capsys: pytest.CaptureFixture, answer: Callable, expected: str) -> None:
    line = said(capsys, check_rejection, answer)
    assert expected in line
    assert line.startswith("✓" if "✓" in expected else "✗ check_rejection: For P = ")
