"""Drafters: they read what the tokens in flight already know and propose the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from .module import PipelineDraftModule
from .pipeline_drafter import PipelineDrafter
from .pretrained import load_module, shipped
from .proposal import Drafter, Proposal
from .simple import Oracle, PromptLookup, Random

NAMED_DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "shipped": shipped,
    "prompt-lookup": PromptLookup,
    "oracle": Oracle,
    "random": Random,
}


def make_drafter(
    drafter: str | Path | Drafter | PipelineDraftModule, tokenizer: PreTrainedTokenizerBase | None = None
) -> Drafter:
    """A drafter by name, from a folder or the hub, from trained weights, or the object itself.

    With the target's ``tokenizer`` it is compared with the one that a drafter on disk was trained for. Raises
    ``ValueError`` naming the known ones, or what is wrong with the files.
    """
    if isinstance(drafter, PipelineDraftModule):
        return PipelineDrafter(drafter)
    if isinstance(drafter, Path):
        return PipelineDrafter(load_module(drafter, tokenizer))
    if isinstance(drafter, str):
        if drafter in NAMED_DRAFTERS:
            return NAMED_DRAFTERS[drafter]()
        if "/" in drafter or (drafter and Path(drafter).is_dir()):
            return PipelineDrafter(load_module(drafter, tokenizer))
        known = ", ".join(NAMED_DRAFTERS)
        raise ValueError(f"unknown drafter {drafter!r}; the known ones are {known}, folders and hub ids")
    if isinstance(drafter, type):
        raise TypeError(f"{drafter.__name__} is a class; give an object: {drafter.__name__}()")
    missing = [name for name in ("begin", "propose", "rollback") if not callable(getattr(drafter, name, None))]
    if missing:
        raise TypeError(f"{type(drafter).__name__} is not a drafter: it has no {', '.join(missing)}")
    return drafter


__all__ = [
    "NAMED_DRAFTERS",
    "Drafter",
    "Oracle",
    "PipelineDraftModule",
    "PipelineDrafter",
    "PromptLookup",
    "Proposal",
    "Random",
    "load_module",
    "make_drafter",
]
