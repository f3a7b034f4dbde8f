"""Trained drafters from a folder, the hub, or this package."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from dataclasses import fields
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.constants import CONFIG_NAME, SAFETENSORS_SINGLE_FILE
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedTokenizerBase

from .config import DraftConfig
from .module import PipelineDraftModule
from .pipeline_drafter import PipelineDrafter

FLOATS = ("F64", "F32", "F16", "BF16")
WEIGHTS = Path(__file__).parents[1] / "weights"


class DrafterError(ValueError):
    """A trained drafter cannot be used; the message is one line that says what to do."""


def vocabulary_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Sixteen hex digits that two tokenizers share only if they give every id the same meaning."""
    items = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()[:16]


def load_module(name: str | Path, tokenizer: PreTrainedTokenizerBase | None = None) -> PipelineDraftModule:
    """A trained module from a folder or a hub id. With the target's ``tokenizer`` the vocabularies are compared.

    Raises :class:`DrafterError` if there is none, if it cannot be read or used, or if it speaks another vocabulary.
    """
    folder = _folder(name)
    config = _config(folder)
    try:
        _check_tensors(folder / SAFETENSORS_SINGLE_FILE, config)  # before room is made for what may not be there
        with contextlib.redirect_stdout(io.StringIO()):  # the hub mixin prints where it reads from
            module = PipelineDraftModule.from_pretrained(str(folder), config=config, strict=True).requires_grad_(False)
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DrafterError(f"cannot load the drafter {str(name)!r}: {reason}") from error
    if tokenizer is not None and vocabulary_fingerprint(tokenizer) != config.tokenizer:
        raise DrafterError(
            f"the drafter {str(name)!r} was trained for the vocabulary of {config.target}, which is another one "
            "than this target's: train one with `python -m spd_lib train`"
        )
    _check_weights(module, str(name))
    return module


def _folder(name: str | Path) -> Path:
    """Where the files of a drafter are, downloaded if they are not here."""
    path = Path(name).expanduser()
    if str(name) and path.is_dir():
        return path
    if isinstance(name, Path) or name.startswith(("/", ".", "~")):
        raise DrafterError(f"there is no folder {str(name)!r} with a trained drafter")
    if name.count("/") != 1:
        raise DrafterError(f"a trained drafter is a folder or a hub id such as 'someone/drafter', got {name!r}")
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG_NAME, SAFETENSORS_SINGLE_FILE]))
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DrafterError(f"there is no folder {name!r}, and the hub gives no such drafter: {reason}") from error


def _config(folder: Path) -> DraftConfig:
    """What config.json says. Raises :class:`DrafterError` naming the field that is wrong."""
    path = folder / CONFIG_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DrafterError(
            f"no trained drafter is in {folder}: cannot read {CONFIG_NAME} ({error.strerror})"
        ) from error
    except ValueError as error:
        raise DrafterError(f"{path} is not JSON") from error
    names = {field.name for field in fields(DraftConfig)}
    if not isinstance(found, dict) or not names <= set(found):
        missing = sorted(names - set(found)) if isinstance(found, dict) else names
        raise DrafterError(f"{path} is no drafter's: it lacks {', '.join(sorted(missing))}")
    try:
        return DraftConfig(**{name: found[name] for name in names})
    except ValueError as error:
        raise DrafterError(f"{path}: {error}") from error


def _check_tensors(path: Path, config: DraftConfig) -> None:
    """Raises :class:`DrafterError` if the file does not hold the shapes and kinds of numbers that ``config`` says."""
    size, last = config.hidden_size, f"layers.{config.num_layers - 1}"
    wanted = {
        "draft_ids": [config.draft_vocab_size],
        "head.weight": [config.draft_vocab_size, size],
        "kind_scales": [len(config.anchors), size],
        f"{last}.q_proj.weight": [config.num_heads * config.head_dim, size],
        f"{last}.k_proj.weight": [config.num_kv_heads * config.head_dim, size],
        f"{last}.gate_proj.weight": [config.intermediate_size, size],
    }
    with safe_open(path, framework="pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 — it is no mapping
        for name, shape in wanted.items():
            there = found[name].get_shape() if name in found else "nothing"
            if there != shape:
                raise DrafterError(f"{path}: {name} must be {shape} by {CONFIG_NAME}, found {there}")
        for name, tensor in found.items():
            if (tensor.get_dtype() in FLOATS) == (name == "draft_ids"):
                raise DrafterError(f"{path}: {name} cannot be {tensor.get_dtype()}")


def _check_weights(module: PipelineDraftModule, name: str) -> None:
    """Raises :class:`DrafterError` for weights that draft nothing: the texts stay right, so nobody would notice."""
    for part, weight in module.named_parameters():
        if not bool(weight.isfinite().all()):
            raise DrafterError(f"the drafter {name!r}: its weights {part} are not finite")
    ids, size = module.draft_ids, module.config.vocab_size
    outside = ids[(ids < 0) | (ids >= size)]
    if len(outside):
        raise DrafterError(f"the drafter {name!r}: draft_ids must be from 0 to {size - 1}, got {int(outside[0])}")
    if len(ids.unique()) < len(ids):
        raise DrafterError(f"the drafter {name!r}: draft_ids has an id twice")


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
