"""Speculative Pipeline Decoding (arXiv 2605.30852): run it, measure it, look inside it.

    target = spd_lib.load("smollm2")
    spd_lib.generate(target.model, input_ids, drafter="prompt-lookup", num_stages=4)

Importing the package loads no torch; its names are looked up when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .core import Trace
    from .decode import GenerateOutput, decoder, generate
    from .draft import Oracle, PromptLookup, Proposal, Random
    from .target import Pipeline, load

_HOMES = {
    "Trace": "core",
    "Pipeline": "target",
    "load": "target",
    "Oracle": "draft",
    "PromptLookup": "draft",
    "Proposal": "draft",
    "Random": "draft",
    "GenerateOutput": "decode",
    "decoder": "decode",
    "generate": "decode",
}

_PACKAGES = ("core", "target", "draft", "decode", "baselines", "show")

__all__ = [
    "GenerateOutput",
    "Oracle",
    "Pipeline",
    "PromptLookup",
    "Proposal",
    "Random",
    "Trace",
    "decoder",
    "generate",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'spd_lib' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
