"""A drafter for whatever target a page of the book is run with."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..draft.module import PipelineDraftModule
from ..draft.pretrained import DrafterError, load_module, shipped_module
from ..target.fingerprint import fingerprint
from ..target.load import Target, cache_folder
from .command import add_train

COMMITTED = Path(__file__).resolve().parents[2] / "training"  # in a checkout of the repository
SMALL = ("--num-tokens", "300000", "--epochs", "3")  # meant to take minutes on a GPU; nobody has timed it yet


def training_texts(target: Target) -> list[Path]:
    """The shards of training tokens that ``target`` has written: those that are committed, or those in the cache."""
    name = target.name.replace("/", "--")
    folders = (COMMITTED / name, cache_folder() / "train/tokens" / name)
    return next((shards for folder in folders if (shards := sorted(folder.glob("*.safetensors")))), [])


def drafter_for(target: Target) -> PipelineDraftModule:
    """The shipped module, or a small one trained here and kept in the cache folder, by the weights of the target.

    Raises :class:`DrafterError` with the command to run where training would take hours: on a CPU.
    """
    try:
        return shipped_module(target.name)
    except DrafterError:
        print(f"No drafter is shipped for {target.name}.")
    folder = cache_folder() / "drafters" / fingerprint(target.model)[:16]
    if not (folder / "config.json").exists():
        command = ["--target", target.name, "--out", str(folder), *SMALL]
        if target.device.type == "cpu":
            how = " ".join(command)
            raise DrafterError(f"training one takes hours on this CPU: `python -m spd_lib train {how}`, then come back")
        parser = argparse.ArgumentParser()
        add_train(parser)
        arguments = parser.parse_args([*command, "--device", str(target.device)])
        if arguments.run(arguments):
            raise KeyboardInterrupt  # it was stopped, and has said so
    return load_module(folder, target.tokenizer)
