"""``python -m spd_lib train``: text, hidden states, training, weights with their card.

torch is imported by the run alone, so that help and errors in the arguments come at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..evaluate.command import STAGES
from .options import DRAFT_VOCAB, add_options, settle, train_config

if TYPE_CHECKING:
    from accelerate import PartialState

    from ..draft.config import DraftConfig
    from ..draft.module import PipelineDraftModule
    from ..target import Target
    from ..target.layers import Decoder
    from .config import TrainConfig
    from .loop import Trainer
    from .teacher import Stored, Streamed
    from .tokens import Conversation, Corpus

DESCRIPTION = """\
Trains a drafter for a target and writes it, with its card, to a folder. By default the target writes the training text
itself: no dataset is needed. Run the same command again to go on where it stopped. While a file named PAUSE lies in the
cache folder (SPD_CACHE, else ~/.cache/spd_lib), it stands still. Several GPUs: accelerate launch -m spd_lib train ...
"""
LONGEST_WAIT = timedelta(days=7)  # of one process for another, which may be writing text, or paused


def add_train(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = DESCRIPTION
    parser.set_defaults(run=run)
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trains and saves; 0, or 130 after Ctrl-C, when a checkpoint is kept."""
    settle(arguments)
    config = train_config(arguments)
    import torch
    from accelerate import PartialState

    from ..target.load import silence_libraries

    silence_libraries()
    on_cpu = arguments.device == "cpu" or not torch.cuda.is_available()
    state = PartialState(cpu=on_cpu, timeout=LONGEST_WAIT)
    try:
        trainer, target = _prepare(arguments, config, state)
        trainer.run()
        if state.is_main_process:
            _ship(arguments, target, trainer)
    except KeyboardInterrupt:
        if state.is_main_process:
            print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    state.wait_for_everyone()
    state.destroy_process_group()
    return 0


def _prepare(arguments: argparse.Namespace, config: TrainConfig, state: PartialState) -> tuple[Trainer, Target]:
    """Target, text, module and hidden states; of several processes the first one makes what the others read.

    What can be wrong is found out before the text is written, which may take hours.
    """
    from ..target import load
    from ..target.load import cache_folder
    from ..target.pipeline import Pipeline
    from .loop import Trainer

    device = str(state.device) if state.num_processes > 1 else arguments.device
    with state.main_process_first():
        target = load(arguments.target, device=device, dtype="bfloat16")
    stages = arguments.stages or arguments.max_stages or 1
    decoder = Pipeline(target.model, stages).decoder  # it can be cut, and its parts add up to itself
    shape = _shape(arguments, target, decoder) if arguments.init is None else _initial(arguments, target)
    with state.main_process_first():
        corpus = _corpus(arguments, target)
    module = _module(shape, decoder, corpus, arguments.seed)
    with state.main_process_first():
        source = _source(arguments, decoder, module.config.anchors, [*corpus.train, *corpus.held_out])
    folder = cache_folder() / "train/runs" / _run_name(arguments, config, corpus, module)
    trainer = Trainer(decoder, module, corpus, source, config, folder)
    if state.is_main_process:
        print(_summary(target, trainer), file=sys.stderr)
    return trainer, target


def _shape(arguments: argparse.Namespace, target: Target, decoder: Decoder) -> DraftConfig:
    """The module that is to be made."""
    from ..draft.config import DraftConfig
    from ..draft.pretrained import vocabulary_fingerprint

    size = min(DRAFT_VOCAB, decoder.vocab_size) if arguments.draft_vocab is None else arguments.draft_vocab
    most = {"draft_vocab": (size, decoder.vocab_size), "draft_layers": (arguments.draft_layers, decoder.num_layers)}
    for name, (given, highest) in most.items():
        if not 1 <= given <= highest:
            raise ValueError(f"{name} must be between 1 and the target's {highest}, got {given}")
    settings = {"anchors": arguments.anchors} if arguments.anchors else {}
    return DraftConfig.like(
        decoder,
        target=target.name,
        tokenizer=vocabulary_fingerprint(target.tokenizer),
        num_layers=arguments.draft_layers,
        draft_vocab_size=size,
        window=arguments.window,
        **settings,
    )


def _initial(arguments: argparse.Namespace, target: Target) -> PipelineDraftModule:
    """The module to start from, which must be one for this target."""
    from ..draft.pretrained import load_module
    from ..evaluate.acceptance import fit

    module = load_module(arguments.init, target.tokenizer)
    fit(module, target)
    return module.float().requires_grad_()


def _module(
    shape: DraftConfig | PipelineDraftModule, decoder: Decoder, corpus: Corpus, seed: int
) -> PipelineDraftModule:
    import torch

    from ..draft.config import DraftConfig
    from ..draft.module import PipelineDraftModule
    from .tokens import draft_vocabulary

    if not isinstance(shape, DraftConfig):
        return shape
    torch.manual_seed(seed)
    ids = draft_vocabulary(corpus.train, shape.draft_vocab_size, decoder.vocab_size)
    return PipelineDraftModule.for_decoder(decoder, shape, ids).float()


def _corpus(arguments: argparse.Namespace, target: Target) -> Corpus:
    from ..target.load import cache_folder
    from .dataset import dataset_corpus
    from .tokens import Corpus, check_ids
    from .writer import WriterConfig, write_shards

    if arguments.dataset is not None:
        chats = dataset_corpus(
            target.tokenizer, arguments.dataset, arguments.num_tokens, arguments.max_tokens, arguments.split
        )
        corpus = Corpus.of(chats)
        check_ids([*corpus.train, *corpus.held_out], target, arguments.dataset)
        return corpus
    own = target.name.replace("/", "--") + (f"-seed-{arguments.seed}" if arguments.seed else "")
    folder = arguments.tokens or cache_folder() / "train/tokens" / own
    if arguments.tokens is not None and not any(folder.glob("tokens-*.safetensors")):
        print(f"{folder} has no shards: {target.name} writes {arguments.num_tokens:,} tokens there", file=sys.stderr)
    return Corpus.read(write_shards(target, folder, arguments.num_tokens, WriterConfig(seed=arguments.seed)))


def _source(
    arguments: argparse.Namespace, decoder: Decoder, anchors: tuple[int, ...], chats: Sequence[Conversation]
) -> Stored | Streamed:
    from ..target.load import cache_folder
    from .teacher import Stored, Streamed

    if arguments.stream or decoder.device.type == "cuda":
        return Streamed(decoder, anchors)
    return Stored(decoder, anchors, chats, cache_folder() / "train/states")


def _run_name(arguments: argparse.Namespace, config: TrainConfig, corpus: Corpus, module: PipelineDraftModule) -> str:
    """A name that the same command finds again and no other one."""
    from ..target.fingerprint import weights_digest

    began = weights_digest(module) if arguments.init else None
    parts = [asdict(config), asdict(module.config), corpus.digest, began]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _summary(target: Target, trainer: Trainer) -> str:
    """The run in one line, before it begins."""
    corpus = trainer.corpus
    parts = [
        f"{target.name} ({_millions(target.model)}) on {target.device}",
        f"{corpus.num_tokens:,} tokens in {len(corpus.train):,} conversations, {len(corpus.held_out):,} held out",
        f"a drafter of {_millions(trainer.plain_module)}",
        f"{trainer.num_steps:,} steps of {trainer.step_tokens:,} tokens",
        f"checkpoint in {trainer.folder}",
    ]
    return " · ".join(parts)


def _millions(module: Any) -> str:
    return f"{sum(parameter.numel() for parameter in module.parameters()) / 1e6:,.1f} M parameters"


def _ship(arguments: argparse.Namespace, target: Target, trainer: Trainer) -> None:
    """Weights in bfloat16, config, card and log, into the folder that was asked for."""
    import torch

    from ..target.load import device_name, versions
    from .card import model_card

    module, out, curve = trainer.plain_module, arguments.out, trainer.entries()
    module.to(torch.bfloat16).float()  # what is checked now is what is written
    stages = [n for n in STAGES if n <= trainer.decoder.num_layers]
    facts = {
        "command": "python -m spd_lib " + shlex.join(sys.argv[1:]),
        "text": arguments.dataset or f"written by {target.name} itself, from its own chat template",
        "tokens": f"{trainer.corpus.num_tokens:,} in {len(trainer.corpus.train):,} conversations, held out "
        f"{len(trainer.corpus.held_out):,}; sha256 of all: {trainer.corpus.digest}",
        "parameters": f"{sum(parameter.numel() for parameter in module.parameters()):,}",
        "steps": f"{trainer.step:,}, {trainer.seconds / 60:.0f} minutes",
        "settings": json.dumps(asdict(trainer.config)),
        "machine": f"{device_name(trainer.decoder.device)}, {torch.get_num_threads()} thread(s)",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    out.mkdir(parents=True, exist_ok=True)
    card = model_card(module.config, facts, trainer.check(stages, max_chats=256), curve)
    (out / "README.md").write_text(card, encoding="utf-8")
    (out / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in curve), encoding="utf-8")
    module.to(torch.bfloat16).save_pretrained(out)
    print(f"the drafter is in {out}", file=sys.stderr)
