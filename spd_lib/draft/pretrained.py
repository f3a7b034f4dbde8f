"""Trained drafters from a folder, the hub, or this package."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from .module import PipelineDraftModule
from .pipeline_drafter import PipelineDrafter

WEIGHTS = Path(__file__).parents[1] / "weights"


class DrafterError(ValueError):
    """A trained drafter cannot be used; the message is one line that says what to do."""


def vocabulary_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Sixteen hex digits that two tokenizers share only if they give every id the same meaning."""
    items = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()[:16]


def load_module(name: str | Path, tokenizer: PreTrainedTokenizerBase | None = None) -> PipelineDraftModule:
    """A trained module from a folder or a hub id. With the target's ``tokenizer`` the vocabularies are compared.

    Raises :class:`DrafterError` if there is none, if it cannot be read, or if it speaks another vocabulary.
    """
    if isinstance(name, Path) or name.startswith(("/", ".", "~")):
        name = Path(name).expanduser()
    if isinstance(name, Path) and not name.is_dir():
        raise DrafterError(f"there is no folder {name} with a trained drafter")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the hub mixin prints where it reads from
            module = PipelineDraftModule.from_pretrained(str(name), strict=True).requires_grad_(False)
    except (OSError, SafetensorError, HFValidationError, TypeError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DrafterError(f"cannot load the drafter {str(name)!r}: {reason}") from error
    if tokenizer is not None and vocabulary_fingerprint(tokenizer) != module.config.tokenizer:
        raise DrafterError(
            f"the drafter {str(name)!r} was trained for the vocabulary of {module.config.target}, which is another one "
            "than this target's: train one with `python -m spd_lib train`"
        )
    return module


def shipped_module(target: str = "smollm2") -> PipelineDraftModule:
    """The module that comes with this package for ``target``. Raises :class:`DrafterError` naming those there are."""
    known = sorted(path.parent.name for path in WEIGHTS.glob("*/config.json"))
    if target not in known:
        raise DrafterError(
            f"no drafter is shipped for {target!r} (there is one for {', '.join(known) or 'no target yet'}): train one "
            "with `python -m spd_lib train`"
        )
    return load_module(WEIGHTS / target)


def shipped() -> PipelineDrafter:
    """The drafter that comes with this package; it knows SmolLM2 and says so to every other target."""
    return PipelineDrafter(shipped_module())
