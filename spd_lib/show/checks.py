"""Checkers for the exercises. Each prints one clear line of success, or what is wrong without giving the answer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spd_lib.core.metrics import acceptance_by_fill, num_cycles, num_refills
from spd_lib.core.plan import Plan, even
from spd_lib.core.simulate import coin_flips, simulate
from spd_lib.core.staircase import row_kinds, standing

PAGE_COLUMNS = 76  # what a page shows of a printed line without scrolling


class _Wrong(Exception):
    """Carries the message for the reader."""


def _report(name: str, success: str, attempt: Callable[[], None]) -> None:
    try:
        attempt()
    except _Wrong as wrong:
        said = f"✗ {name}: {wrong}"
    else:
        said = f"✓ {name}: {success}"
    print(textwrap.fill(said, PAGE_COLUMNS, break_long_words=False))


def _call(function: Callable[..., Any], case: str, *arguments: Any) -> Any:
    """What the reader's function returns, its errors and a forgotten ``return`` turned into messages."""
    try:
        answer = function(*arguments)
    except Exception as error:  # whatever a reader's code may raise belongs in the message
        raise _Wrong(f"{case}, your function stops with {type(error).__name__}: {error}") from error
    if answer is None:
        raise _Wrong(f"{case}, your function returns nothing. Is a return missing?")
    return answer


def _sequence(answer: Any, case: str) -> list[Any]:
    try:
        return list(answer)
    except TypeError:
        raise _Wrong(f"{case}, your function returns {answer!r}, which is not a list.") from None


def check_plan(my_plan: Callable[[int, int], Sequence[int]]) -> None:
    """Exercise of *Partitioning*: ``my_plan(num_layers, num_stages)`` → layers per stage, as evenly as possible.

    Where the layers do not divide, the larger shares come first.
    """

    def attempt() -> None:
        for layers in range(1, 41):
            for stages in range(1, layers + 1):
                _check_one_plan(my_plan, layers, stages)

    _report("check_plan", "right for every n from 1 to L, for every L from 1 to 40 (820 plans).", attempt)


def _check_one_plan(my_plan: Callable[[int, int], Sequence[int]], layers: int, stages: int) -> None:
    case = f"For {layers} layers in {stages} stages"
    counts = _sequence(_call(my_plan, case, layers, stages), case)
    if counts == list(even(layers, stages).counts):
        return
    said = f"{case}, your plan is {counts}."
    if any(not isinstance(count, int) for count in counts):
        raise _Wrong(f"{said} A stage owns a whole number of layers.")
    if len(counts) != stages:
        raise _Wrong(f"{said} It has {len(counts)} stages.")
    if sum(counts) != layers:
        raise _Wrong(f"{said} It places {sum(counts)} layers.")
    if max(counts) - min(counts) > 1:
        raise _Wrong(f"{said} The largest stage has {max(counts) - min(counts)} layers more than the smallest.")
    raise _Wrong(f"{said} The shares are even, but the larger ones should come first.")


def check_cycles(my_cycles: Callable[[int, int, int], int]) -> None:
    """Exercise of *The cycle*: ``my_cycles(n, N, R)`` → K, compared with what the simulator counts.

    n: stages, N: generated tokens with the free first one, R: corrections among the tokens 2 … N − 1.
    """

    def attempt() -> None:
        for stages, tokens, refills, cycles in _simulated_counts():
            case = f"For n = {stages}, N = {tokens}, R = {refills}"
            answer = _call(my_cycles, case, stages, tokens, refills)
            if answer != cycles:
                raise _Wrong(
                    f"{case}, you say {answer}, the simulator counts {cycles} cycles. {_hint(tokens, refills)}"
                )

    _report("check_cycles", "equal to the simulator in 360 runs.", attempt)


def _simulated_counts() -> Iterator[tuple[int, int, int, int]]:
    """n, N, R, K of 360 simulated runs: first without a wrong draft, then with some, then with wrong ones only."""
    for acceptance in (1.0, 0.6, 0.0):
        for stages in range(1, 11):
            for tokens in (2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 1):
                trace = simulate(coin_flips(acceptance, seed=tokens), stages, tokens)
                yield stages, tokens, num_refills(trace), num_cycles(trace)


def _hint(tokens: int, refills: int) -> str:
    if tokens == 1:
        return "Where does the first token come from?"
    if refills == 0:
        return "How many cycles pass before the first judgement, and how many between two judgements in a full pipe?"
    return "You are right as long as no draft is wrong. How long does the pipe take to judge again after a correction?"


def check_standing(my_standing: Callable[[int, int, int], Sequence[int | None]]) -> None:
    """Exercise of *The cycle*: ``my_standing(newest, fill, n)`` → the position in each stage, ``None`` if idle.

    newest: position of the youngest token in flight; fill: tokens in flight; n: stages.
    """

    def attempt() -> None:
        for stages in range(1, 9):
            for fill in range(1, stages + 1):
                for newest in (fill, fill + 7, 40):
                    _check_one_standing(my_standing, newest, fill, stages)

    _report("check_standing", "right for every n up to 8 and every fill.", attempt)


def _check_one_standing(my_standing: Callable[..., Sequence[int | None]], newest: int, fill: int, stages: int) -> None:
    case = f"With position {newest} as the newest of {fill} tokens in flight and {stages} stages"
    answer = _sequence(_call(my_standing, case, newest, fill, stages), case)
    right = list(standing(newest, fill, stages))
    if answer == right:
        return
    said = f"{case}, you say {answer}."
    if len(answer) != stages:
        raise _Wrong(f"{said} There should be one entry for each stage.")
    if answer.count(None) != stages - fill:
        raise _Wrong(f"{said} With {fill} tokens in flight, how many of the {stages} stages are idle?")
    if answer[0] != newest:
        raise _Wrong(f"{said} Which token has just entered stage 0?")
    stage = next(stage for stage in range(stages) if answer[stage] != right[stage])
    raise _Wrong(f"{said} Look at stage {stage}: its token entered the pipe {stage} cycles before the newest.")


def check_kinds(my_kinds: Callable[[Sequence[int], Sequence[int], int], Sequence[int]]) -> None:
    """Exercise of *Multi-depth features*: ``my_kinds(anchors, boundaries, fill)`` → kinds in flight, newest first.

    boundaries: layers passed after 0 … n stages.
    """

    def attempt() -> None:
        for anchors in ((0, 4, 8, 12, 16, 20, 24, 30), (0, 15, 30), tuple(range(31))):
            for stages in (1, 2, 4, 5, 8, 16, 30):
                for fill in range(1, stages + 1):
                    _check_one_flight(my_kinds, anchors, even(30, stages), fill)

    _report("check_kinds", "right for every n, every fill, and three sets of anchors.", attempt)


def _check_one_flight(my_kinds: Callable[..., Sequence[int]], anchors: Sequence[int], plan: Plan, fill: int) -> None:
    stages = plan.num_stages
    case = f"With the anchors {', '.join(map(str, anchors[:4]))} … on 30 layers, n = {stages} and fill {fill}"
    answer = _sequence(_call(my_kinds, case, anchors, plan.boundaries, fill), case)
    right = list(row_kinds(plan, anchors, fill))
    if answer == right:
        return
    said = f"{case}, you say {answer}."
    if len(answer) != len(right):
        raise _Wrong(f"{said} How many tokens can be in flight?")
    place = next(place for place in range(len(right)) if answer[place] != right[place])
    layers = plan.boundaries[place]
    raise _Wrong(f"{said} Look at place {place}: its token has passed {layers} layers. Which anchor is its deepest?")


def check_acceptance(my_acceptance: Callable[[Sequence[float]], float]) -> None:
    """Exercise of *The draft module*: ``my_acceptance(agreement)`` → acceptance rate of a long run.

    agreement: probability that a draft is right at fill 1 … n.
    """

    def attempt() -> None:
        for agreement in ((0.5,), (0.6, 0.6, 0.6), (0.9, 0.2), (0.4, 0.5, 0.6, 0.7), (0.8, 0.7, 0.6, 0.5, 0.0)):
            case = f"With agreement {', '.join(map(str, agreement))}"
            answer = _call(my_acceptance, case, list(agreement))
            right = acceptance_by_fill(agreement)
            if not (isinstance(answer, (int, float)) and math.isclose(answer, right, abs_tol=1e-6)):
                raise _Wrong(
                    f"{case}, you say {answer}. How often is a draft at each fill judged, and how long does a full "
                    "pipe stay full?"
                )

    _report("check_acceptance", "right, whether the drafter gets better or worse as the pipe fills.", attempt)


Distribution = Sequence[float]
# Pairs (P, Q) over which the law of the output is taken: apart, alike, with zeros on either side, point masses.
_PAIRS: tuple[tuple[Distribution, Distribution], ...] = (
    ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5)),
    ((0.1, 0.6, 0.3), (0.7, 0.2, 0.1)),
    ((0.25, 0.25, 0.25, 0.25), (0.25, 0.25, 0.25, 0.25)),
    ((0.0, 0.4, 0.6), (0.5, 0.5, 0.0)),
    ((0.7, 0.2, 0.1), (0.0, 0.0, 1.0)),
    ((1.0, 0.0), (0.3, 0.7)),
    ((0.05, 0.15, 0.2, 0.25, 0.35), (0.35, 0.25, 0.2, 0.15, 0.05)),
)
_GRID = 400  # values of u for each draft; the law is then known to 1/400
_TOLERANCE = 0.005


def check_rejection(
    my_rule: Callable[[list[float], list[float], int, float], tuple[bool, Distribution | None]],
) -> None:
    """Exercise of *Lossless verification*: ``my_rule(p, q, draft, u)`` → (accepted, residual distribution).

    p, q: lists, probabilities of target and draft; draft: an id drawn from q; u: uniform in (0, 1). The residual is
    what the token is drawn from when the draft is rejected; it is not looked at otherwise. The checker adds up the law
    of the output exactly over q and over a grid of u, and compares it with p.
    """

    def attempt() -> None:
        for p, q in _PAIRS:
            law, accepted = _output_law(my_rule, p, q)
            case = f"For P = {list(p)} and Q = {list(q)}"
            worst = max(range(len(p)), key=lambda token: abs(law[token] - p[token]))
            if abs(law[worst] - p[worst]) > _TOLERANCE:
                raise _Wrong(
                    f"{case}, token {worst} comes out with probability {law[worst]:.2f}. {_blame(accepted, p, q)}"
                )
            best = sum(map(min, p, q))
            if accepted < best - _TOLERANCE:
                raise _Wrong(
                    f"{case}, the output has the right law, but you accept {accepted:.2f} of the drafts. "
                    "An exact rule can accept more."
                )

    _report(
        "check_rejection", f"the output follows P in all {len(_PAIRS)} pairs, with the highest acceptance.", attempt
    )


def _blame(accepted: float, p: Distribution, q: Distribution) -> str:
    if abs(accepted - sum(map(min, p, q))) <= _TOLERANCE:
        return "You accept as often as an exact rule does, so look at what is drawn after a rejection."
    return f"You accept {accepted:.2f} of the drafts: compare with how much P and Q have in common."


def _output_law(my_rule: Callable[..., Any], p: Distribution, q: Distribution) -> tuple[list[float], float]:
    """The law of the token that comes out, and the probability that the draft is accepted."""
    law, total = [0.0] * len(p), 0.0
    for draft, chance in enumerate(q):
        if chance == 0:
            continue
        for step in range(_GRID):
            u, weight = (step + 0.5) / _GRID, chance / _GRID
            case = f"For P = {list(p)}, Q = {list(q)}, draft {draft} and u = {u:.4g}"
            accepted, residual = _accepted_and_residual(my_rule, case, p, q, draft, u)
            if accepted:
                law[draft] += weight
                total += weight
            else:
                law = [so_far + weight * share for so_far, share in zip(law, residual, strict=True)]
    return law, total


def _accepted_and_residual(
    my_rule: Callable[..., Any], case: str, p: Distribution, q: Distribution, draft: int, u: float
) -> tuple[bool, list[float]]:
    answer = _sequence(_call(my_rule, case, list(p), list(q), draft, u), case)
    if len(answer) != 2:
        raise _Wrong(f"{case}, your rule should return two things, accepted and the residual.")
    accepted, residual = answer
    if accepted:
        return True, []
    shares = _sequence(residual, f"{case}, rejected")
    if len(shares) != len(p):
        raise _Wrong(f"{case}, the residual has {len(shares)} entries for {len(p)} tokens.")
    if not all(math.isfinite(share) for share in shares):
        raise _Wrong(f"{case}, the residual is {shares}. Do you divide by zero?")
    if min(shares) < 0:
        raise _Wrong(f"{case}, the residual has a negative probability: {min(shares):.3g}.")
    if abs(sum(shares) - 1) > 1e-6:
        raise _Wrong(f"{case}, the residual adds up to {sum(shares):.3g}, not to 1.")
    return False, shares
