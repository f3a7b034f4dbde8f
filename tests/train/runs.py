"""Small training runs on the tiny target. As a program: one that is killed in the middle of a step.

python -m tests.train.runs FOLDER STEP
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from spd_lib.draft.config import DraftConfig
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.target.layers import Decoder
from spd_lib.train.config import TrainConfig
from spd_lib.train.loop import Trainer
from spd_lib.train.teacher import Streamed
from spd_lib.train.tokens import Corpus, draft_vocabulary
from tests.train.chat import chatty, conversations

CONFIG = TrainConfig(
    max_steps=12, batch_tokens=100, check_every_steps=4, warmup_steps=2, save_every_s=1e9, mixed_precision="no"
)


def make(folder: Path, config: TrainConfig = CONFIG, count: int = 12, seed: int = 0) -> Trainer:
    """A trainer of a drafter of one layer; ``seed`` is that of its initial weights."""
    decoder = Decoder(chatty().model)
    corpus = Corpus.of(conversations(count))
    draft = DraftConfig.like(decoder, target="tiny", tokenizer="", num_layers=1, draft_vocab_size=60, window=16)
    ids = draft_vocabulary(corpus.train, 60, decoder.vocab_size)
    module = PipelineDraftModule.for_decoder(decoder, draft, ids)
    torch.manual_seed(seed)
    torch.nn.init.normal_(module.kind_scales, 1.0, 0.1)
    return Trainer(decoder, module, corpus, Streamed(decoder, draft.anchors), config, folder)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Copies, by name."""
    return {name: tensor.clone() for name, tensor in trainer.plain_module.state_dict().items()}


def curve(trainer: Trainer) -> list[dict]:
    """The log without its clock."""
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in trainer.entries()]


def main() -> None:
    """Saves after every step and dies in the middle of an update."""
    folder, last = Path(sys.argv[1]), int(sys.argv[2])
    trainer = make(folder, replace(CONFIG, save_every_s=0.0))
    step = trainer.optimizers[1].step

    def dies() -> None:
        if trainer.step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        step()

    trainer.optimizers[1].step = dies
    print(json.dumps(trainer.run()))


if __name__ == "__main__":
    main()
