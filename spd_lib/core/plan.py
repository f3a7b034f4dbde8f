"""Which decoder layers each stage owns (paper, section "Pipeline partition").

A plan is a cut of the layer ruler 0 … L into n contiguous stages. Every n from 1 to L works; nothing has to divide
anything. The final norm and the language-model head always run after the last stage; what differs between the two
named plans is whether the cut takes their cost into account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Plan:
    """A contiguous partition of ``L`` decoder layers into ``n`` stages.

    ``boundaries`` has n + 1 entries, from 0 to L; stage ``s`` (0-based) owns the layers
    ``boundaries[s] … boundaries[s + 1] − 1``. A stage may own no layer only if it is the last one (it then does the
    head alone). A token at *depth* d has passed d stages and therefore ``boundaries[d]`` layers.
    """

    boundaries: tuple[int, ...]
    name: str = "explicit"

    def __post_init__(self) -> None:
        counts = self.counts
        if not counts:
            raise ValueError(f"a plan needs at least one stage, got boundaries {self.boundaries}")
        if self.boundaries[0] != 0 or min(counts) < 0 or self.num_layers < 1:
            raise ValueError(f"boundaries must rise from 0 to the number of layers, got {self.boundaries}")
        if min(counts[:-1], default=1) < 1:
            raise ValueError(f"every stage but the last needs at least one layer, got layer counts {counts}")

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers per stage, n entries."""
        return tuple(b - a for a, b in zip(self.boundaries, self.boundaries[1:], strict=False))

    @property
    def num_stages(self) -> int:
        """n."""
        return len(self.boundaries) - 1

    @property
    def num_layers(self) -> int:
        """L."""
        return self.boundaries[-1]

    def layers(self, stage: int) -> range:
        """The layers that ``stage`` (0-based) owns."""
        return range(self.boundaries[stage], self.boundaries[stage + 1])

    def layers_passed(self, depth: int) -> int:
        """How many layers a token has passed that has left ``depth`` stages behind (0 … n)."""
        return self.boundaries[depth]

    def cycle_cost(self, head_cost: float) -> float:
        """Length of one cycle in units of one layer's time, the head done by whoever runs the last stage.

        The cycle waits for the slowest of the stages; the last one has its layers and ``head_cost`` to do.
        """
        return max(max(self.counts), self.counts[-1] + head_cost)

    def effective_stages(self, head_cost: float) -> float:
        """n_eff = (L + head) ÷ cycle: the largest speedup this plan allows, with drafts that are always right."""
        return (self.num_layers + head_cost) / self.cycle_cost(head_cost)


def _check_stages(num_layers: int, num_stages: int) -> None:
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    if not 1 <= num_stages <= num_layers:
        raise ValueError(f"num_stages must be between 1 and the model's {num_layers} layers, got {num_stages}")


def _from_counts(counts: Sequence[int], name: str) -> Plan:
    boundaries = [0]
    for count in counts:
        boundaries.append(boundaries[-1] + count)
    return Plan(tuple(boundaries), name)


def _spread(num_layers: int, num_stages: int) -> list[int]:
    """``num_layers`` over ``num_stages`` as evenly as possible, the larger shares first."""
    base, extra = divmod(num_layers, num_stages)
    return [base + (stage < extra) for stage in range(num_stages)]


def even(num_layers: int, num_stages: int) -> Plan:
    """The paper's plan: layers split as evenly as possible, the head a separate verify step after the last stage."""
    _check_stages(num_layers, num_stages)
    return _from_counts(_spread(num_layers, num_stages), "even")


def balanced(num_layers: int, num_stages: int, head_cost: float) -> Plan:
    """The plan for real pipelines: ``head_cost`` (in layer units) counts as work of the last stage.

    Among all cuts it takes the shortest cycle, and among those the one that leaves the last stage the most layers.
    The last stage may end up with none.
    """
    _check_stages(num_layers, num_stages)
    if head_cost < 0:
        raise ValueError(f"head_cost must not be negative, got {head_cost}")
    if num_stages == 1:
        return Plan((0, num_layers), "balanced")

    def cycle(last: int) -> tuple[float, int]:
        return max(ceil((num_layers - last) / (num_stages - 1)), last + head_cost), -last

    last = min(range(num_layers - num_stages + 2), key=cycle)
    return _from_counts([*_spread(num_layers - last, num_stages - 1), last], "balanced")


NAMED_PLANS = ("even", "balanced")


def make_plan(plan: str | Plan | Sequence[int], num_layers: int, num_stages: int, head_cost: float) -> Plan:
    """The plan that a user asked for: a name, a :class:`Plan`, or the layers per stage.

    Raises ``ValueError`` if it does not fit a model of ``num_layers`` layers cut into ``num_stages`` stages.
    """
    if isinstance(plan, str):
        if plan == "even":
            return even(num_layers, num_stages)
        if plan == "balanced":
            return balanced(num_layers, num_stages, head_cost)
        raise ValueError(f"unknown plan {plan!r}; the named plans are {', '.join(NAMED_PLANS)}")
    made = plan if isinstance(plan, Plan) else _from_counts([int(count) for count in plan], "explicit")
    if made.num_layers != num_layers:
        raise ValueError(f"the plan covers {made.num_layers} layers, the model has {num_layers}")
    if made.num_stages != num_stages:
        raise ValueError(f"the plan has {made.num_stages} stages, num_stages is {num_stages}")
    return made
