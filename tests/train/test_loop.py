"""Training learns, stops with a message, and goes on as if it had never stopped."""

from __future__ import annotations

import json
import math

import pytest
import torch

from spd_lib.draft.module import DraftConfig, PipelineDraftModule
from spd_lib.target.layers import Decoder
from spd_lib.train import loop, pause
from spd_lib.train.loop import TrainConfig, Trainer, TrainingError
from spd_lib.train.teacher import Streamed
from spd_lib.train.tokens import Corpus, draft_vocabulary
from tests.train.chat import chatty, conversations

CONFIG = TrainConfig(
    max_steps=10, batch_tokens=200, check_every_steps=4, warmup_steps=2, save_every_s=1e9, mixed_precision="no"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPD_CACHE", str(tmp_path / "cache"))


def make(folder, config: TrainConfig = CONFIG, count: int = 24) -> Trainer:
    decoder = Decoder(chatty().model)
    corpus = Corpus.of(conversations(count))
    draft = DraftConfig.like(decoder, target="tiny", tokenizer="", num_layers=1, draft_vocab_size=60, window=16)
    torch.manual_seed(0)
    ids = draft_vocabulary(corpus.train, 60, decoder.vocab_size)
    module = PipelineDraftModule.for_decoder(decoder, draft, ids)
    return Trainer(decoder, module, corpus, Streamed(decoder, draft.anchors), config, folder)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.plain_module.state_dict().items()}


def entries(trainer: Trainer) -> list[dict]:
    return [json.loads(line) for line in trainer.log.read_text().splitlines()]


def test_it_learns(tmp_path) -> None:
    trainer = make(tmp_path, TrainConfig(max_steps=60, batch_tokens=400, check_every_steps=20, mixed_precision="no"))
    before = trainer.check((2, 4))
    after = trainer.run()
    losses = [entry["loss"] for entry in entries(trainer)]
    assert losses == sorted(losses, reverse=True)
    assert after["n=4"]["acceptance"] > before["n=4"]["acceptance"]
    assert set(after["n=4"]["agreement"]) == {"1", "2", "3", "4"}


@pytest.mark.parametrize("kill_at", [1, 5, 7, 9])
def test_killed_and_resumed_is_bit_for_bit_the_same(tmp_path, monkeypatch, kill_at: int) -> None:
    """Killed in the middle of a step, after a checkpoint two steps before."""
    whole = make(tmp_path / "whole")
    whole.run()
    update, saved_at = Trainer._update, max(0, kill_at - 2)

    def killed(self, work):
        if self.step == saved_at:
            self.save()
        if self.step == kill_at:
            next(work)
            raise KeyboardInterrupt
        return update(self, work)

    monkeypatch.setattr(Trainer, "_update", killed)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "parts").run()
    monkeypatch.setattr(Trainer, "_update", update)
    resumed = make(tmp_path / "parts")
    resumed.run()
    ours, theirs = weights(resumed), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [entry["step"] for entry in entries(resumed)] == [entry["step"] for entry in entries(whole)] == [4, 8, 10]


def test_a_finished_run_trains_no_more(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path).run()
    monkeypatch.setattr(Trainer, "_update", lambda *_: 1 / 0)
    assert make(tmp_path).run()["n=4"]["acceptance"] >= 0


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(tmp_path, monkeypatch) -> None:
    trainer = make(tmp_path)
    trainer.save()
    before = trainer.checkpoint.read_bytes()
    monkeypatch.setattr(loop, "draft_loss", lambda hidden, *_: hidden.sum() * math.nan)
    with pytest.raises(TrainingError, match="loss is nan at step 0: lower the learning rate"):
        trainer.run()
    assert trainer.checkpoint.read_bytes() == before


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(tmp_path)
    trainer.save()
    before = trainer.checkpoint.read_bytes()

    def full(state, path) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainingError, match="No space left on device.*the checkpoint before it is whole"):
        trainer.save()
    assert trainer.checkpoint.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["checkpoint.pt"]


def test_a_checkpoint_of_something_else_is_refused(tmp_path) -> None:
    make(tmp_path).save()
    with pytest.raises(TrainingError, match="other tokens or settings"):
        make(tmp_path, count=20).run()
    with pytest.raises(TrainingError, match="other tokens or settings"):
        make(tmp_path, TrainConfig(max_steps=11, mixed_precision="no")).run()


def test_a_pause_file_stops_the_clock(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause.pause_file().parent.mkdir(parents=True, exist_ok=True)
    pause.pause_file().touch()
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            pause.pause_file().unlink()

    monkeypatch.setattr(pause.time, "sleep", sleep)
    trainer = make(tmp_path / "run")
    monkeypatch.setattr(loop, "wait_while_paused", lambda: pause.wait_while_paused() + 1000 * (trainer.step == 0))
    trainer.run()
    assert waits == [pause.POLL_S] * 3
    assert trainer.seconds < 500


@pytest.mark.parametrize("name", ["epochs", "batch_tokens", "accumulate", "learning_rate", "check_every_steps"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0, got 0"):
        TrainConfig(**{name: 0})
