"""A cycle-accurate simulator of SPD: from the flags of the judged drafts to the Trace, without a model.

It is a shift register written from the rules of the method alone and shares nothing with the engine but the Trace
format, so that the two can check each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from .trace import Trace, TraceBuilder, Verdict


def coin_flips(acceptance: float, seed: int = 0) -> Iterator[bool]:
    """An endless stream of independent flags, each right with probability ``acceptance``."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance must be between 0 and 1, got {acceptance}")
    source = random.Random(seed)
    while True:
        yield source.random() < acceptance


def simulate(
    flags: Iterable[bool],
    num_stages: int,
    num_tokens: int,
    *,
    budget: int | None = None,
    prompt_length: int = 1,
) -> Trace:
    """Runs the pipe until ``num_tokens`` tokens are committed.

    ``flags``: for each judged draft in order, whether it is right. ``budget``: the ``max_new_tokens`` the run was
    given; a larger one than ``num_tokens`` means that an end-of-sequence token ended the text early, so that the pipe
    goes on drafting until then. Raises ``ValueError`` if the flags run out.
    """
    if num_stages < 1 or num_tokens < 1:
        raise ValueError(f"num_stages and num_tokens must be at least 1, got {num_stages} and {num_tokens}")
    budget = num_tokens if budget is None else budget
    if budget < num_tokens:
        raise ValueError(f"budget {budget} is smaller than num_tokens {num_tokens}")
    outcome = iter(flags)
    build = TraceBuilder(num_stages, prompt_length)
    last_position = prompt_length + budget - 1
    newest, committed = prompt_length, 1
    register: list[int | None] = [None] * num_stages  # register[s]: uid of the token that stage s steps next
    position = {}  # uid → position
    register[0] = build.token(newest, "prefill")
    position[register[0]] = newest
    while committed < num_tokens:
        stages = tuple(() if uid is None else (uid,) for uid in register)
        draft = None
        if newest < last_position:
            draft = build.token(newest + 1, "draft")
            position[draft] = newest + 1
        finished = register[-1]
        register = [draft, *register[:-1]]
        if draft is not None:
            newest += 1
        if finished is None:
            build.cycle(stages, draft)
            continue
        judged = next(uid for uid in register if uid is not None and position[uid] == position[finished] + 1)
        committed += 1
        if _next_flag(outcome):
            build.cycle(stages, draft, [Verdict(finished, judged, judged)])
            continue
        flushed = tuple(sorted(uid for uid in register if uid is not None))
        correction = build.token(position[judged], "correction")
        build.cycle(stages, draft, [Verdict(finished, judged, correction)], flushed)
        newest = position[correction] = position[judged]
        register = [correction, *[None] * (num_stages - 1)]
    return build.finish("budget" if committed == budget else "eos")


def _next_flag(outcome: Iterator[bool]) -> bool:
    try:
        return next(outcome)
    except StopIteration:
        raise ValueError("the flags ran out before num_tokens tokens were committed") from None
