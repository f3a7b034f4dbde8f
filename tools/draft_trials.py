"""Trials of the drafter's shape and training on one small budget, into results/draft-trials-smollm2-cpu.json.

Each trial differs from the first one in a single thing. A finished trial is kept and not run again; name trials to run
those alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spd_lib.draft.config import DraftConfig, default_anchors
from spd_lib.draft.module import PipelineDraftModule, staircase_attention
from spd_lib.evaluate.report import provenance, save
from spd_lib.target import Decoder, load
from spd_lib.target.load import Target, cache_folder
from spd_lib.train.config import TrainConfig
from spd_lib.train.loop import Trainer
from spd_lib.train.teacher import Stored
from spd_lib.train.tokens import Conversation, Corpus, draft_vocabulary

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results/draft-trials-smollm2-cpu.json"
STAGES, HELD_OUT = (4, 5, 16), 128
TOKENS, STEPS = 500_000, 250
POOL_TOKENS = 1_500_000  # trials that leave out some answers take others from here


class ContextualRows(PipelineDraftModule):
    """Every row runs through the layers, as in an ordinary transformer, instead of being read as it is.

    A row in flight then sees the deeper rows before it, so training needs a stream of its own for every place in the
    pipe, and inference recomputes all rows in flight whenever one of them changes.
    """

    def read(
        self, states: Tensor, kinds: Sequence[int], *, window: int | None = None, select: Tensor | None = None
    ) -> Tensor:
        """As in the base class; stream j holds what a token knows that stands j places behind the newest one."""
        fill, count, span = len(kinds), states.shape[2], window or self.config.window
        rows = self._rows_of(states, sorted({*kinds, 0, self.config.complete}))
        streams = [*(rows[kind] for kind in kinds), rows[self.config.complete]]
        rotary = self.rotary(torch.arange(count, device=states.device))
        for layer in self.stack:
            memory = {place: layer.remember(stream, rotary) for place, stream in enumerate(streams)}
            following = []
            for place, stream in enumerate(streams):
                seen = list(range(place, max(fill, place + 1)))
                visible = self._visible(count, len(seen), span, states.device)
                mixed = staircase_attention(layer.ask(stream, rotary), memory, seen, fill, visible)
                following.append(layer.answer(stream, mixed))
            streams = following
        return self.norm(streams[0].flatten(0, 1) if select is None else streams[0][select])


class SeparateProjections(PipelineDraftModule):
    """A row of each kind has projections of its own, for all the anchors that it is made of."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config)
        size, kinds = config.hidden_size, len(config.anchors)
        pairs = [(kind, anchor) for kind in range(kinds) for anchor in range(kind + 1)]
        self.places = {pair: place for place, pair in enumerate(pairs)}
        self.anchor_projections = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in pairs)

    def _rows_of(self, states: Tensor, kinds: Sequence[int]) -> dict[int, Tensor]:
        rows = {}
        for kind in kinds:
            parts = [self.contribution(self.places[kind, anchor], states[anchor]) for anchor in range(kind + 1)]
            rows[kind] = self.rows(torch.stack(parts).sum(dim=0), kind)
        return rows


class SomeAnchors:
    """Hidden states at some of the anchors that were stored."""

    def __init__(self, stored: Stored, anchors: Sequence[int]) -> None:
        self.stored, self.places = stored, [stored.anchors.index(anchor) for anchor in anchors]

    def states(self, chats: Sequence[Conversation]) -> Tensor:
        """[anchors, B, S, hidden_size]"""
        return self.stored.states(chats)[self.places]


@dataclass(frozen=True)
class Trial:
    """What differs from the defaults of training and of a module."""

    shape: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    module: type[PipelineDraftModule] = PipelineDraftModule
    from_target: bool = True
    adamw: float | None = None
    answers: Callable[[float], bool] = lambda temperature: True


TRIALS = {
    "default": Trial(),
    "default, another seed": Trial(training={"seed": 1}),
    "five stages alone": Trial(training={"min_stages": 5, "max_stages": 5}),
    "messages learnt too": Trial(training={"whole_chats": True}),
    "one layer": Trial({"num_layers": 1}),
    "three layers": Trial({"num_layers": 3}),
    "contextual rows": Trial(module=ContextualRows),
    "separate projections": Trial(module=SeparateProjections),
    "random initial weights": Trial(from_target=False),
    "8,192 ids": Trial({"draft_vocab_size": 8192}),
    "16,384 ids": Trial({"draft_vocab_size": 16384}),
    "four anchors": Trial({"anchors": (0, 12, 20, 30)}),
    "embedding and last output alone": Trial({"anchors": (0, 30)}),
    "window of 64": Trial({"window": 64}),
    "greedy answers alone": Trial(answers=lambda temperature: temperature == 0),
    "sampled answers alone": Trial(answers=lambda temperature: temperature > 0),
    "full pipes alone": Trial(training={"expected_acceptance": 1.0}),
    "half the learning rate": Trial(training={"learning_rate": 3e-3, "head_learning_rate": 1e-3}),
    "twice the learning rate": Trial(training={"learning_rate": 12e-3, "head_learning_rate": 4e-3}),
    "AdamW alone, 1e-3": Trial(adamw=1e-3),
    "AdamW alone, 3e-3": Trial(adamw=3e-3),
}


def run(trial: Trial, target: Target, corpus: Corpus) -> dict[str, Any]:
    """Trains one drafter on a part of ``corpus`` and returns how it does on the held-out texts."""
    decoder = Decoder(target.model)
    train = up_to(TOKENS, [chat for chat in corpus.train if trial.answers(chat.temperature)])
    part = replace(corpus, train=train)
    anchors = default_anchors(decoder.num_layers)
    shape = {"anchors": anchors, "draft_vocab_size": 12288, "window": 256} | trial.shape
    config = DraftConfig.like(decoder, target=target.name, tokenizer="", **shape)
    ids = draft_vocabulary(train, config.draft_vocab_size, decoder.vocab_size)
    torch.manual_seed(0)
    module = start(trial, decoder, config, ids).float()
    stored = Stored(decoder, anchors, [*corpus.held_out, *train], cache_folder() / "train/states")
    source = SomeAnchors(stored, config.anchors)
    settings = TrainConfig(max_steps=STEPS, decay_share=0.5, check_every_steps=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(decoder, module, part, source, replace(settings, **trial.training), Path(folder))
        if trial.adamw:
            trainer.optimizers = [torch.optim.AdamW(module.parameters(), trial.adamw, betas=(0.9, 0.95))]
        last = trainer.run()
    found = trainer.check(STAGES, max_chats=HELD_OUT)
    figures = {name: entry["acceptance"] for name, entry in found.items()}
    size = sum(parameter.numel() for parameter in module.parameters())
    return {"parameters": size, "seconds": last["seconds"], "loss": round(last["loss"], 4), **figures}


def start(trial: Trial, decoder: Decoder, config: DraftConfig, ids: Tensor) -> PipelineDraftModule:
    """The module before its first step."""
    if trial.module is SeparateProjections:
        module = SeparateProjections(config)
        common = PipelineDraftModule.for_decoder(decoder, config, ids)
        module.load_state_dict({k: v for k, v in common.state_dict().items() if "anchor_pro" not in k}, strict=False)
        for (_, anchor), place in module.places.items():
            module.anchor_projections[place].load_state_dict(common.anchor_projections[anchor].state_dict())
        return module
    if trial.from_target:
        return trial.module.for_decoder(decoder, config, ids)
    module = trial.module(config)
    module.draft_ids.copy_(ids)
    return module


def up_to(tokens: int, chats: Sequence[Conversation]) -> list[Conversation]:
    """The first conversations that hold so many tokens."""
    kept: list[Conversation] = []
    for chat in chats:
        if tokens <= 0:
            break
        kept.append(chat)
        tokens -= len(chat.ids)
    return kept


def main() -> int:
    """Runs what is missing and saves after every trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=f"of: {'; '.join(TRIALS)} (default: all)")
    names = parser.parse_args().trials or list(TRIALS)
    unknown = [name for name in names if name not in TRIALS]
    if unknown:
        parser.error(f"no trial is named {unknown[0]!r}: python {Path(__file__).relative_to(ROOT)} --help lists them")
    target = load("smollm2", dtype="bfloat16")
    whole = Corpus.read((ROOT / "training/smollm2").glob("*.safetensors"))
    corpus = replace(whole, train=up_to(POOL_TOKENS, whole.train), held_out=whole.held_out[:HELD_OUT])
    budget = {
        "target": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "tokens": TOKENS,
        "steps": STEPS,
        "held_out": HELD_OUT,
        "tokens_a_step": TrainConfig().batch_tokens,
        "corpus": corpus.digest,
    }
    old = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    same = all(old.get(key) == value for key, value in budget.items())
    done = [each for each in old["trials"] if each["trial"] in TRIALS] if same else []
    for name in names:
        if name not in [each["trial"] for each in done]:
            began = time.monotonic()
            row = {"trial": name, **run(TRIALS[name], target, corpus)}
            done.append(row)
            done.sort(key=lambda each: list(TRIALS).index(each["trial"]))
            save(provenance("python tools/draft_trials.py") | budget | {"trials": done}, RESULT)
            print(f"{row} ({time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
