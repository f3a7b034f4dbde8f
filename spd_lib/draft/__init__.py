"""Drafters: they read what the tokens in flight already know and propose the next one."""

from __future__ import annotations

from collections.abc import Callable

from .proposal import Drafter, Proposal
from .simple import Oracle, PromptLookup, Random

NAMED_DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "prompt-lookup": PromptLookup,
    "oracle": Oracle,
    "random": Random,
}


def make_drafter(drafter: str | Drafter) -> Drafter:
    """A drafter by name, or the object itself. Raises ``ValueError`` naming the known ones."""
    if isinstance(drafter, str):
        if drafter not in NAMED_DRAFTERS:
            raise ValueError(f"unknown drafter {drafter!r}; the known ones are {', '.join(NAMED_DRAFTERS)}")
        return NAMED_DRAFTERS[drafter]()
    if isinstance(drafter, type):
        raise TypeError(f"{drafter.__name__} is a class; give an object: {drafter.__name__}()")
    missing = [name for name in ("begin", "propose", "rollback") if not callable(getattr(drafter, name, None))]
    if missing:
        raise TypeError(f"{type(drafter).__name__} is not a drafter: it has no {', '.join(missing)}")
    return drafter


__all__ = ["NAMED_DRAFTERS", "Drafter", "Oracle", "PromptLookup", "Proposal", "Random", "make_drafter"]
