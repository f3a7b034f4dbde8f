"""Plans, the arithmetic of the pipe, Traces and metrics; standard library only, so that it runs in a browser too."""

from .metrics import (
    acceptance_rate,
    equivalent_acceptance_length,
    expected_cycles,
    expected_speedup,
    tokens_per_cycle,
)
from .plan import Plan, balanced, even, make_plan
from .simulate import coin_flips, simulate
from .trace import Trace

__all__ = [
    "Plan",
    "Trace",
    "acceptance_rate",
    "balanced",
    "coin_flips",
    "equivalent_acceptance_length",
    "even",
    "expected_cycles",
    "expected_speedup",
    "make_plan",
    "simulate",
    "tokens_per_cycle",
]
