"""The options of ``python -m spd_lib train``: which there are, which go together, and what they come to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..evaluate.command import integers
from ..files import check_folder
from .config import PRECISIONS, TrainConfig

DRAFT_VOCAB = 12_288
SHAPE = {"draft_layers": 2, "draft_vocab": None, "window": 256, "anchors": None}
DEFAULTS = SHAPE | {"max_tokens": 512, "epochs": 4.0}
IDLE_BESIDE = {"init": tuple(SHAPE), "dataset": ("tokens",), "stages": ("max_stages",), "max_steps": ("epochs",)}
IDLE_WITHOUT = {"dataset": ("split", "max_tokens")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """All of them, in groups."""
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the trained drafter goes")
    _add_text(parser.add_argument_group("target and text"))
    _add_drafter(parser.add_argument_group("drafter"))
    _add_training(parser.add_argument_group("training"))


def _add_text(group: Any) -> None:
    add = group.add_argument
    add("--target", help="smollm2, a hub id or a folder (default: the environment's SPD_TARGET, else smollm2)")
    add("--tokens", type=Path, metavar="FOLDER", help="shards of training tokens; missing ones are written here")
    add(
        "--num-tokens",
        type=int,
        default=2_000_000,
        metavar="N",
        help="how much text, in tokens; of shards that are there already, whole ones (default: 2000000)",
    )
    add("--dataset", metavar="NAME", help="chats on the hub or in a .jsonl file, instead of the target's own text")
    add("--split", help="split of a dataset on the hub (default: train)")
    add("--max-tokens", type=int, metavar="N", help="longest text of a dataset (default: 512 tokens)")


def _add_drafter(group: Any) -> None:
    add = group.add_argument
    add("--init", metavar="FOLDER", help="start from these weights, whose shape stays; the optimiser starts afresh")
    add("--draft-layers", type=int, metavar="N", help="layers of the drafter (default: 2)")
    add("--draft-vocab", type=int, metavar="N", help=f"ids it can draft (default: {DRAFT_VOCAB}, or all there are)")
    add("--window", type=int, metavar="N", help="how far it looks back, in tokens (default: 256)")
    add("--anchors", type=integers, metavar="A,B,...", help="layers it reads (default: about eight, evenly spaced)")
    add(
        "--max-stages", type=int, metavar="N", help="largest n it is trained for (default: 16, or the layers there are)"
    )
    add("--stages", type=int, metavar="N", help="train for this n alone, instead of 2 … --max-stages")


def _add_training(group: Any) -> None:
    add = group.add_argument
    add("--epochs", type=float, metavar="N", help="passes over the text (default: 4)")
    add("--max-steps", type=int, metavar="N", help="steps, instead of --epochs")
    add("--batch-tokens", type=int, default=2048, metavar="N", help="tokens of one pass (default: 2048)")
    add("--accumulate", type=int, default=1, metavar="N", help="passes of one step (default: 1)")
    add("--learning-rate", type=float, default=6e-3, metavar="RATE", help="the highest one (default: 0.006)")
    add("--decay-share", type=float, default=0.3, metavar="SHARE", help="last part, falling to zero (default: 0.3)")
    add("--seed", type=int, default=0, help="of text and training (default: 0)")
    add("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, ...")
    add("--precision", default="bf16", choices=PRECISIONS, help="of the arithmetic; weights stay float32")
    add("--whole-chats", action="store_true", help="learn the users' messages too, not the answers alone")
    add("--stream", action="store_true", help="compute hidden states anew each epoch instead of keeping them on disk")


def settle(arguments: argparse.Namespace) -> None:
    """Refuses options that would do nothing beside the others, then fills in what was not said."""
    given = {name for name, value in vars(arguments).items() if value is not None}
    idle = [(f"beside --{_dashed(one)}", name) for one, names in IDLE_BESIDE.items() if one in given for name in names]
    idle += [(f"without --{one}", name) for one, names in IDLE_WITHOUT.items() if one not in given for name in names]
    for where, name in idle:
        if name in given:
            raise ValueError(f"--{_dashed(name)} does nothing {where}: leave it out")
    for name, value in DEFAULTS.items():
        if name not in given:
            setattr(arguments, name, value)
    for name in ("num_tokens", "max_tokens"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"{name} must be above 0, got {getattr(arguments, name)}")
    for folder in (arguments.out, arguments.tokens):
        if folder is not None:
            check_folder(folder)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def train_config(arguments: argparse.Namespace) -> TrainConfig:
    """What they say about the training."""
    most = TrainConfig.max_stages if arguments.max_stages is None else arguments.max_stages
    return TrainConfig(
        epochs=arguments.epochs,
        max_steps=arguments.max_steps,
        batch_tokens=arguments.batch_tokens,
        accumulate=arguments.accumulate,
        learning_rate=arguments.learning_rate,
        decay_share=arguments.decay_share,
        min_stages=min(2, most) if arguments.stages is None else arguments.stages,
        max_stages=most if arguments.stages is None else arguments.stages,
        seed=arguments.seed,
        mixed_precision=arguments.precision,
        whole_chats=arguments.whole_chats,
    )
