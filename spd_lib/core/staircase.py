"""The arithmetic of the pipe: who stands at which depth, who judges whom, what a flush undoes.

Positions count tokens from the start of the prompt. *Newest* is the position of the youngest token in flight; *fill*
is the number of tokens in flight (1 … n). The token at distance d behind the newest one has depth d: it has passed d
stages and stands in front of stage d.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .plan import Plan


def standing(newest: int, fill: int, num_stages: int) -> tuple[int | None, ...]:
    """The position that each stage (0 … n − 1) works on in a cycle; ``None`` where a stage is idle."""
    return tuple(newest - stage if stage < fill else None for stage in range(num_stages))


def drafted_position(newest: int) -> int:
    """The position that is drafted while ``newest`` is the youngest token in flight."""
    return newest + 1


def judged_position(finished: int) -> int:
    """The position whose token is judged by the logits of the token at ``finished``."""
    return finished + 1


def depth_of(query: int, key: int, fill: int, num_stages: int) -> int:
    """Depth (0 … n) of the token at ``key`` as seen by a drafter whose newest token is ``query``.

    In flight: its distance behind the newest token. Older than ``fill`` tokens: it has left the pipe, depth n. This is
    the staircase that training masks and inference both follow (method, §5.2).
    """
    distance = query - key
    if distance < 0:
        raise ValueError(f"position {key} is in the future of position {query}")
    return distance if distance < min(fill, num_stages) else num_stages


def anchors_passed(anchors: Sequence[int], layers: int) -> int:
    """Index of the deepest anchor that a token has reached after ``layers`` layers: its *kind* as a row of features.

    Anchor k is the output of the first k layers; anchor 0, the embedding, comes first and is always there.
    """
    return bisect_right(anchors, layers) - 1


def row_kinds(plan: Plan, anchors: Sequence[int], fill: int) -> tuple[int, ...]:
    """The kinds of the rows in flight as the drafter sees them, newest first; every older row is complete.

    The entry at d is the kind of the token d places behind the newest one, for d < min(fill, n). This one function is
    the training mask and what a run offers (paper, section "Multi-depth feature aggregation"; method, §5.2).
    """
    in_flight = min(fill, plan.num_stages)
    depths = (depth_of(distance, 0, fill, plan.num_stages) for distance in range(in_flight))
    return tuple(anchors_passed(anchors, plan.layers_passed(depth)) for depth in depths)


def undone_steps(stage: int, num_stages: int) -> int:
    """Steps that ``stage`` (0-based) has to undo after a rejection in a full pipe: n − 1 − s."""
    return num_stages - 1 - stage


def flush_triangle(num_stages: int) -> int:
    """Stage slots wasted by one flush of a full pipe, and as many that stand idle while it refills: n(n − 1)/2."""
    return num_stages * (num_stages - 1) // 2
