"""``python -m spd_lib train``: text, hidden states, training, weights with their card.

torch is imported by the run alone, so that help and errors in the arguments come at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..draft.module import PipelineDraftModule
    from ..target import Target
    from .loop import TrainConfig, Trainer
    from .tokens import Corpus

DESCRIPTION = """\
Trains a drafter for a target and writes it, with its card, to a folder. By default the target writes the training text
itself: no dataset is needed. Run the same command again to go on where it stopped. While a file named PAUSE lies in the
cache folder (SPD_CACHE, else ~/.cache/spd_lib), it stands still.
"""


def add_train(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = DESCRIPTION
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FOLDER", help="where the trained drafter goes")
    add("--target", help="smollm2, a hub id or a folder (default: the environment's SPD_TARGET, else smollm2)")
    add("--tokens", type=Path, metavar="FOLDER", help="shards of training tokens; missing ones are written here")
    add("--num-tokens", type=int, default=2_000_000, metavar="N", help="how much text (default: 2000000 tokens)")
    add("--dataset", metavar="NAME", help="chats on the hub or in a .jsonl file, instead of the target's own text")
    add("--split", default="train", help="split of the dataset (default: train)")
    add("--max-tokens", type=int, default=512, metavar="N", help="longest text of a dataset (default: 512 tokens)")
    add("--init", metavar="FOLDER", help="start from these weights; the optimiser starts afresh")
    add("--draft-layers", type=int, default=2, metavar="N", help="layers of the drafter (default: 2)")
    add("--draft-vocab", type=int, default=12_288, metavar="N", help="ids it can draft (default: 12288)")
    add("--window", type=int, default=256, metavar="N", help="how far it looks back, in tokens (default: 256)")
    add("--anchors", type=_integers, metavar="A,B,...", help="layers it reads (default: about eight, evenly spaced)")
    add("--epochs", type=float, default=4.0, help="passes over the text (default: 4)")
    add("--max-steps", type=int, metavar="N", help="steps, instead of --epochs")
    add("--batch-tokens", type=int, default=2048, metavar="N", help="tokens of one pass (default: 2048)")
    add("--accumulate", type=int, default=1, metavar="N", help="passes of one step (default: 1)")
    add("--learning-rate", type=float, default=6e-3, metavar="RATE", help="the highest one (default: 0.006)")
    add("--decay-share", type=float, default=0.3, metavar="SHARE", help="last part, falling to zero (default: 0.3)")
    add("--max-stages", type=int, default=16, metavar="N", help="largest n it is trained for (default: 16)")
    add("--stages", type=int, metavar="N", help="train for this n alone, instead of 2 … --max-stages")
    add("--seed", type=int, default=0, help="of text and training (default: 0)")
    add("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, ...")
    add("--precision", default="bf16", choices=("bf16", "no"), help="of the arithmetic; weights stay float32")
    add("--stream", action="store_true", help="compute hidden states anew each epoch instead of keeping them on disk")


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Trains and saves; 0, or 130 after Ctrl-C, when a checkpoint is kept."""
    from ..core.plan import even
    from ..target import load
    from .loop import Trainer
    from .teacher import Stored, Streamed

    for name in ("num_tokens", "max_tokens"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"{name} must be above 0, got {getattr(arguments, name)}")
    config = _config(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    target = load(arguments.target, device=arguments.device, dtype="bfloat16")
    from ..target.layers import Decoder
    from ..target.load import cache_folder

    decoder = Decoder(target.model)
    if arguments.stages is not None:
        even(decoder.num_layers, arguments.stages)  # so many can be cut
    corpus = _corpus(arguments, target)
    module = _module(arguments, target, decoder, corpus)
    chats = [*corpus.train, *corpus.held_out]
    anchors = module.config.anchors
    stream = arguments.stream or decoder.device.type == "cuda"
    source = Streamed(decoder, anchors) if stream else Stored(decoder, anchors, chats, cache_folder() / "train/states")
    folder = cache_folder() / "train/runs" / _run_name(arguments, config, corpus, module)
    trainer = Trainer(decoder, module, corpus, source, config, folder)
    try:
        trainer.run()
    except KeyboardInterrupt:
        trainer.save()
        print(f"stopped at step {trainer.step}; the same command goes on from there", file=sys.stderr)
        return 130
    _ship(arguments, target, trainer)
    return 0


def _corpus(arguments: argparse.Namespace, target: Target) -> Corpus:
    from ..target.load import cache_folder
    from .dataset import dataset_corpus
    from .tokens import Corpus
    from .writer import WriterConfig, write_shards

    if arguments.dataset is not None:
        chats = dataset_corpus(
            target.tokenizer, arguments.dataset, arguments.num_tokens, arguments.max_tokens, arguments.split
        )
        return Corpus.of(chats)
    folder = arguments.tokens or cache_folder() / "train/tokens" / target.name.replace("/", "--")
    return Corpus.read(write_shards(target, folder, arguments.num_tokens, WriterConfig(seed=arguments.seed)))


def _module(arguments: argparse.Namespace, target: Target, decoder: Any, corpus: Corpus) -> PipelineDraftModule:
    import torch

    from ..draft.module import DraftConfig, PipelineDraftModule
    from ..draft.shipped import load_module, vocabulary_fingerprint
    from .tokens import draft_vocabulary

    if arguments.init is not None:
        return load_module(arguments.init, target.tokenizer).float().requires_grad_().to(decoder.device)
    size = min(arguments.draft_vocab, decoder.vocab_size)
    settings = {"anchors": arguments.anchors} if arguments.anchors else {}
    config = DraftConfig.like(
        decoder,
        target=target.name,
        tokenizer=vocabulary_fingerprint(target.tokenizer),
        num_layers=arguments.draft_layers,
        draft_vocab_size=size,
        window=arguments.window,
        **settings,
    )
    torch.manual_seed(arguments.seed)
    ids = draft_vocabulary(corpus.train, size, decoder.vocab_size)
    return PipelineDraftModule.for_decoder(decoder, config, ids).float().to(decoder.device)


def _config(arguments: argparse.Namespace) -> TrainConfig:
    from .loop import TrainConfig

    return TrainConfig(
        epochs=arguments.epochs,
        max_steps=arguments.max_steps,
        batch_tokens=arguments.batch_tokens,
        accumulate=arguments.accumulate,
        learning_rate=arguments.learning_rate,
        decay_share=arguments.decay_share,
        min_stages=arguments.stages or 2,
        max_stages=arguments.stages or arguments.max_stages,
        seed=arguments.seed,
        mixed_precision=arguments.precision,
    )


def _run_name(arguments: argparse.Namespace, config: TrainConfig, corpus: Corpus, module: PipelineDraftModule) -> str:
    """A name that the same command finds again and no other one."""
    parts = [asdict(config), asdict(module.config), corpus.digest, str(arguments.init)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _ship(arguments: argparse.Namespace, target: Target, trainer: Trainer) -> None:
    """Weights in bfloat16, config, card and log, into the folder that was asked for."""
    import torch

    from ..target.load import device_name, versions
    from .card import model_card

    module, out = trainer.plain_module, arguments.out
    curve = [json.loads(line) for line in trainer.log.read_text(encoding="utf-8").splitlines()]
    stages = [n for n in (2, 3, 4, 5, 6, 8, 10, 15, 16) if n <= trainer.decoder.num_layers]
    facts = {
        "command": "python -m spd_lib " + " ".join(sys.argv[1:]),
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
