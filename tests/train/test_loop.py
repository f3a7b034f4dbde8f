"""Training learns, stops with a message, and goes on as if it had never stopped."""

from __future__ import annotations

import copy
import math
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from filelock import FileLock

from spd_lib.train import draws, loop, pause
from spd_lib.train.config import TrainConfig
from spd_lib.train.draws import batches
from spd_lib.train.held_out import HeldOut
from spd_lib.train.loop import Trainer, TrainingError
from tests.train import runs
from tests.train.chat import chatty
from tests.train.runs import CONFIG, curve, make, weights

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A run that nobody disturbed."""
    trainer = make(tmp_path_factory.mktemp("whole"))
    trainer.run()
    assert [entry["step"] for entry in trainer.entries()] == [4, 8, 12]
    return trainer


def assert_the_same(resumed: Trainer, whole: Trainer) -> None:
    """Bit for bit, and no step is logged twice."""
    ours, theirs = weights(resumed), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert curve(resumed) == curve(whole)


def test_it_learns(tmp_path) -> None:
    config = TrainConfig(max_steps=60, batch_tokens=400, check_every_steps=20, mixed_precision="no")
    trainer = make(tmp_path, config, count=24)
    before = trainer.check((2, 4))
    after = trainer.run()
    losses = [entry["loss"] for entry in trainer.entries()]
    assert losses == sorted(losses, reverse=True)
    assert after["n=4"]["acceptance"] > before["n=4"]["acceptance"]
    assert set(after["n=4"]["agreement"]) == {"1", "2", "3", "4"}


def test_whole_chats_are_learnt_but_for_what_they_all_begin_with(tmp_path) -> None:
    answers, whole = make(tmp_path), make(tmp_path, replace(CONFIG, whole_chats=True))
    assert answers.learn_from is None
    assert whole.learn_from == 1, "all tiny chats begin with the same mark"
    chats, moment = whole.corpus.train[:2], whole.law.draw(random.Random(0))
    mean = {trainer: trainer.loss(chats, moment).item() for trainer in (answers, whole)}
    assert mean[answers] != mean[whole]


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (loop, "draft_loss", 1),
        (loop, "draft_loss", 7),
        (Accelerator, "backward", 9),
        (HeldOut, "check", 1),
        (HeldOut, "check", 3),
        (Trainer, "_write_log", 2),
        (torch, "save", 1),
    ],
)
def test_interrupted_and_resumed_is_bit_for_bit_the_same(
    tmp_path, monkeypatch, whole: Trainer, owner, name: str, call: int
) -> None:
    called, function = iter(range(1, 10**6)), getattr(owner, name)

    def interrupted(*arguments, **options):
        if next(called) == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path).run()
    resumed = make(tmp_path)
    resumed.run()
    assert_the_same(resumed, whole)


@pytest.mark.parametrize("number", pause.STOPPING)
def test_a_signal_in_the_middle_of_an_update_waits_for_its_end(tmp_path, whole: Trainer, number: int) -> None:
    trainer = make(tmp_path)
    step = trainer.optimizers[1].step

    def disturbed() -> None:
        if trainer.step == 5:
            os.kill(os.getpid(), number)
        step()

    trainer.optimizers[1].step = disturbed
    before = signal.signal(number, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    signal.signal(number, before)
    assert trainer.step == torch.load(trainer.checkpoint)["step"] == 6
    resumed = make(tmp_path)
    resumed.run()
    assert_the_same(resumed, whole)


def test_killed_without_a_word_and_resumed_is_bit_for_bit_the_same(tmp_path, whole: Trainer) -> None:
    """After the checkpoint was written and the log had gone on; the log also lost half a line."""
    command = [sys.executable, "-m", "tests.train.runs", str(tmp_path), "9"]
    assert subprocess.run(command, cwd=ROOT, timeout=120, capture_output=True).returncode == -signal.SIGKILL
    resumed = make(tmp_path, replace(CONFIG, save_every_s=0.0))
    with resumed.log.open("a") as file:
        file.write('{"step": 9, "sec')
    resumed.run()
    assert_the_same(resumed, whole)


def test_an_old_checkpoint_forgets_what_was_logged_after_it(tmp_path, whole: Trainer) -> None:
    first = make(tmp_path)
    first.save()
    old = first.checkpoint.read_bytes()
    first.run()
    first.checkpoint.write_bytes(old)
    resumed = make(tmp_path)
    resumed.run()
    assert_the_same(resumed, whole)


def test_epochs_follow_one_another_wherever_one_begins(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "POOL_BATCHES", 1)
    trainer = make(tmp_path, replace(CONFIG, accumulate=2, batch_tokens=84))
    chats = trainer.corpus.train
    lengths = [len(list(batches(chats, 84, f"0:{epoch}"))) for epoch in range(3)]
    assert len(set(lengths)) > 1  # or this proves nothing
    stream = list(islice(trainer._work(), sum(lengths)))
    seen = Counter(id(chat) for batch in stream for chat in batch)
    assert seen == {id(chat): 3 for chat in chats}
    trainer.step = 5
    assert list(islice(trainer._work(), sum(lengths) - 10)) == stream[10:]


def test_a_finished_run_trains_no_more(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = make(tmp_path).run()
    monkeypatch.setattr(Trainer, "_update", lambda *_: 1 / 0)
    monkeypatch.setattr(HeldOut, "check", lambda *_: 1 / 0)
    assert make(tmp_path).run() == last


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(tmp_path, monkeypatch) -> None:
    trainer = make(tmp_path)
    trainer.save()
    before = trainer.checkpoint.read_bytes()
    monkeypatch.setattr(loop, "draft_loss", lambda hidden, *_: hidden.sum() * math.nan)
    with pytest.raises(TrainingError, match="loss is nan at step 0: lower the learning rate, now 0.006"):
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
        trainer.run()
    assert trainer.checkpoint.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"checkpoint.pt", "lock", "log.jsonl"}


def test_a_checkpoint_of_something_else_is_refused(tmp_path) -> None:
    make(tmp_path).save()
    for other in (make(tmp_path, count=11), make(tmp_path, replace(CONFIG, max_steps=13)), make(tmp_path, seed=1)):
        with pytest.raises(TrainingError, match="other tokens, settings or initial weights"):
            other.run()


def test_two_at_once_do_not_write_over_each_other(tmp_path) -> None:
    with FileLock(tmp_path / "lock"), pytest.raises(TrainingError, match="another process is training in"):
        make(tmp_path).run()


def test_two_precisions_in_one_program(tmp_path) -> None:
    losses = [
        make(tmp_path / precision, replace(CONFIG, mixed_precision=precision, max_steps=2)).run()["loss"]
        for precision in ("bf16", "no")
    ]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


@pytest.mark.parametrize("precision", ["bf16", "no"])
def test_a_target_in_bfloat16_teaches_in_both(tmp_path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    coarse = replace(chatty(), model=copy.deepcopy(chatty().model).to(torch.bfloat16))
    monkeypatch.setattr(runs, "chatty", lambda: coarse)
    trainer = make(tmp_path, replace(CONFIG, mixed_precision=precision, max_steps=2))
    trainer.plain_module.float()
    assert math.isfinite(trainer.run()["loss"])


def test_as_many_processes_go_on_as_began(tmp_path) -> None:
    trainer = make(tmp_path)
    trainer.run()
    state = torch.load(trainer.checkpoint)
    torch.save(state | {"processes": 4}, trainer.checkpoint)
    with pytest.raises(TrainingError, match=r"of 4 process\(es\), not 1: go on with as many"):
        make(tmp_path).run()


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


@pytest.mark.parametrize(
    "settings", [{"decay_share": 1.5}, {"max_stages": 1}, {"min_stages": 0}, {"mixed_precision": "fp16"}]
)
def test_settings_that_make_no_sense(settings: dict) -> None:
    with pytest.raises(ValueError, match="|".join(["decay_share", "stages", "mixed_precision"])):
        TrainConfig(**settings)


@pytest.mark.parametrize("found", [b"", b"PK\x03\x04 half a checkpoint", b"not a checkpoint at all"])
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path, found: bytes) -> None:
    trainer = make(tmp_path)
    trainer.checkpoint.write_bytes(found)
    with pytest.raises(TrainingError, match="cannot read .*checkpoint.pt .*: delete it to begin anew") as caught:
        trainer.run()
    assert "\n" not in str(caught.value)


def broken(state: dict, what: str) -> object:
    """A checkpoint with one thing in it that cannot be."""
    if what == "nan":
        state["module"]["norm.weight"].fill_(math.nan)
    return {
        "list": [3],
        "empty": {},
        "nan": state,
        "optimizers": state | {"optimizers": []},
        "groups": state | {"optimizers": [{}, {}]},
        "step": state | {"step": "x"},
        "negative": state | {"step": -5},
        "late": state | {"step": 10_000},
    }[what]


@pytest.mark.parametrize("what", ["list", "empty", "nan", "optimizers", "groups", "step", "negative", "late"])
def test_a_checkpoint_of_something_else_is_named(tmp_path, what: str) -> None:
    trainer = make(tmp_path)
    trainer.save()
    torch.save(broken(torch.load(trainer.checkpoint, weights_only=True), what), trainer.checkpoint)
    with pytest.raises(TrainingError, match="cannot read .*checkpoint.pt .*: delete it to begin anew"):
        trainer.run()


@pytest.mark.parametrize("line", ["{broken", "[1]", "{}", '{"step": null}'])
def test_a_log_that_cannot_be_read_is_named(tmp_path, line: str) -> None:
    trainer = make(tmp_path)
    trainer.log.write_text(line + "\n")
    with pytest.raises(TrainingError, match="cannot read .*log.jsonl .*: delete it"):
        trainer.run()
