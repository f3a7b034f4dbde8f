"""Three numbers that everybody confuses, each with its formula, and the cycle count that ties them together.

N: generated tokens, the free first one included. K: cycles. n: stages. R: corrections among tokens 2 … N − 1.
The authors' code calls N/K "acceptance rate"; here the acceptance rate is accepted ÷ judged and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .trace import Trace


def num_tokens(trace: Trace) -> int:
    """N, the generated tokens, counting the first one, which the prefill gives without a cycle."""
    return len(trace.committed)


def num_cycles(trace: Trace) -> int:
    """K."""
    return len(trace.cycles)


def num_judged(trace: Trace) -> int:
    """Drafts that were judged."""
    return sum(len(cycle.verdicts) for cycle in trace.cycles)


def num_accepted(trace: Trace) -> int:
    """Drafts that were judged right."""
    return sum(verdict.accepted for cycle in trace.cycles for verdict in cycle.verdicts)


def num_refills(trace: Trace) -> int:
    """R, corrections among tokens 2 … N − 1: those after which the pipe had to fill again."""
    return sum(trace.tokens[uid].origin == "correction" for uid in trace.committed[1:-1])


def acceptance_rate(trace: Trace) -> float:
    """p = accepted ÷ judged. NaN when nothing was judged."""
    judged = num_judged(trace)
    return num_accepted(trace) / judged if judged else float("nan")


def tokens_per_cycle(trace: Trace) -> float:
    """N / K. NaN for a text of one token, which takes no cycle."""
    cycles = num_cycles(trace)
    return num_tokens(trace) / cycles if cycles else float("nan")


def equivalent_acceptance_length(trace: Trace) -> float:
    """L'_acc = n · N / K (paper, "equivalent acceptance length"): tokens per full pass through the model.

    For long texts it is the theoretical speedup over plain decoding when all stages take equally long and nothing else
    takes time. Short ones differ a little: N counts the first token, which costs no cycle.
    """
    return trace.num_stages * tokens_per_cycle(trace)


def expected_cycles(num_stages: int, num_tokens: int, num_refills: int) -> int:
    """K = n + (N − 2) + (n − 1)·R for N ≥ 2, and 0 for N ≤ 1.

    The first judgement comes in cycle n; each later token needs one cycle, or n after a correction.
    """
    if num_tokens < 2:
        return 0
    return num_stages + (num_tokens - 2) + (num_stages - 1) * num_refills


def expected_speedup(acceptance: float, num_stages: int) -> float:
    """S(n) = 1 / ((1 − p) + p/n), Amdahl's law of SPD: the limit of L'_acc for long texts.

    A share p of the tokens is n times faster, the rest pay for a whole pass. Floor 1, ceiling 1/(1 − p).
    """
    return 1 / ((1 - acceptance) + acceptance / num_stages)


def judged_by_fill(agreement: Sequence[float]) -> list[float]:
    """Shares of fill 1 … n among the judged drafts of a long run; at fill k a draft is right with ``agreement[k − 1]``.

    The k-th draft after a flush is judged only if the k − 1 before it were right, and sees min(k, n) tokens in flight.
    So fill k < n is judged with weight Π_{j<k} p_j, and a full pipe, which lasts until it errs, with
    Π_{j<n} p_j / (1 − p_n).
    """
    if not agreement or not all(0 <= p <= 1 for p in agreement):
        raise ValueError(f"agreement must be probabilities by fill 1 … n, got {list(agreement)}")
    reached = [prod(agreement[:fill]) for fill in range(len(agreement))]
    if reached[-1] and agreement[-1] == 1:  # a full pipe that never errs
        return [0.0] * (len(agreement) - 1) + [1.0]
    if reached[-1]:
        reached[-1] /= 1 - agreement[-1]
    return [weight / sum(reached) for weight in reached]


def acceptance_by_fill(agreement: Sequence[float]) -> float:
    """The acceptance rate of a long run whose drafts are right with probability ``agreement[k − 1]`` at fill k (1 … n).

    Each fill counts as often as it is judged (:func:`judged_by_fill`).
    """
    return sum(share * p for share, p in zip(judged_by_fill(agreement), agreement, strict=True))
