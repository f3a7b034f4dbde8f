"""The command from end to end, on a tiny model in a folder."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

import spd_lib
from spd_lib.cli import main
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pretrained import DrafterError, load_module, shipped_module
from spd_lib.train import loop, writer
from spd_lib.train.loop import Trainer
from spd_lib.train.writer import WriterConfig
from tests.families import VOCAB, prompt_of
from tests.train.chat import chatty, conversations, tokenizer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    """A folder with a target and a file of chats."""
    folder = tmp_path_factory.mktemp("train")
    chatty().model.save_pretrained(folder / "target")
    tokenizer().save_pretrained(folder / "target")
    rows = []
    for chat in conversations(24):
        start = list(chat.learn).index(True)
        user = tokenizer().decode(chat.ids[1 : start - 2])
        answer = tokenizer().decode(chat.ids[start:])
        rows.append({"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]})
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def train(home, *more: str) -> int:
    fixed = ["--target", str(home / "target"), "--dataset", str(home / "chats.jsonl"), "--device", "cpu"]
    shape = [] if "--init" in more else ["--draft-vocab", "60", "--window", "16"]
    return main(["train", *fixed, *shape, "--batch-tokens", "200", "--max-steps", "4", *more])


@pytest.fixture(scope="module")
def trained(home):
    patch = pytest.MonkeyPatch()
    patch.setenv("SPD_CACHE", str(home / "cache"))
    assert train(home, "--out", str(home / "drafter")) == 0
    yield home / "drafter"
    patch.undo()


def test_weights_card_and_log(trained) -> None:
    assert {"config.json", "model.safetensors", "README.md", "log.jsonl"} <= {path.name for path in trained.iterdir()}
    card = (trained / "README.md").read_text()
    for fact in ("tokens:", "steps: 4", "machine:", "sha256", "| n | fill 1", "acceptance"):
        assert fact in card
    module = load_module(trained, tokenizer())
    with safe_open(trained / "model.safetensors", framework="pt") as file:
        assert file.get_tensor("head.weight").dtype == torch.bfloat16
    assert module.config.target == str(trained.parent / "target")
    assert json.loads((trained / "log.jsonl").read_text().splitlines()[-1])["step"] == 4


def test_the_trained_drafter_drafts(trained) -> None:
    prompt = torch.tensor([prompt_of(5)])
    plain = spd_lib.generate(chatty().model, prompt, drafter="random", max_new_tokens=10)
    ours = spd_lib.generate(chatty().model, prompt, drafter=str(trained), max_new_tokens=10)
    assert torch.equal(plain, ours)
    assert torch.equal(plain, spd_lib.generate(chatty().model, prompt, drafter=load_module(trained), max_new_tokens=10))


def test_the_same_command_again_trains_nothing(home, trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "_update", lambda *_: 1 / 0)
    before = (trained / "model.safetensors").read_bytes()
    assert train(home, "--out", str(trained)) == 0
    assert (trained / "model.safetensors").read_bytes() == before


def test_training_goes_on_from_given_weights(home, trained) -> None:
    assert train(home, "--out", str(home / "more"), "--init", str(trained)) == 0
    assert (home / "more" / "model.safetensors").exists()


def test_other_weights_to_start_from_are_another_run(home, trained, capsys) -> None:
    """The same command, but the folder that it names holds something else by now."""
    start = home / "start"
    shutil.copytree(trained, start)
    assert train(home, "--out", str(home / "again"), "--init", str(start)) == 0
    module = load_module(trained)
    module.kind_scales.data.mul_(2)
    module.save_pretrained(start)
    capsys.readouterr()
    assert train(home, "--out", str(home / "again"), "--init", str(start)) == 0
    assert "training: 100%" in capsys.readouterr().err, "it did not find the old run and call it done"
    first, second = (load_module(folder).state_dict()["kind_scales"] for folder in (trained, home / "again"))
    assert not torch.equal(first, second)


def test_the_target_writes_its_own_text(home, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(writer, "WriterConfig", lambda seed: WriterConfig(rows=6, span_tokens=150, seed=seed))
    monkeypatch.setenv("SPD_CACHE", str(home / "cache"))
    options = ["--num-tokens", "400", "--tokens", str(home / "tokens"), "--stages", "2", "--window", "16"]
    where = ["--target", str(home / "target"), "--out", str(home / "own"), "--device", "cpu"]
    assert main(["train", *where, *options, "--max-steps", "2"]) == 0
    assert "itself, from its own chat template" in (home / "own" / "README.md").read_text()
    assert [path.name for path in (home / "tokens").iterdir()] == ["tokens-00000.safetensors"]
    assert load_module(home / "own").config.draft_vocab_size == VOCAB  # all there are
    said = capsys.readouterr().err
    assert f"{home / 'tokens'} has no shards: {home / 'target'} writes 400 tokens there" in said
    assert "2 steps of 2,048 tokens · checkpoint in" in said
    assert "arning" not in said


def test_an_interrupted_run_goes_on(home, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("SPD_CACHE", str(home / "cache"))
    update, where = Trainer._update, ["--out", str(home / "parts"), "--seed", "1"]

    def interrupted(self, work) -> None:
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        update(self, work)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", interrupted)
        assert train(home, *where) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "stopped; the same command goes on from here"
    assert train(home, *where) == 0
    monkeypatch.setenv("SPD_CACHE", str(home / "fresh"))
    assert train(home, "--out", str(home / "whole"), "--seed", "1") == 0
    assert (home / "whole/model.safetensors").read_bytes() == (home / "parts/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "/no/such/target"], "there is no folder"),
        (["--dataset", "/no/such.jsonl"], "cannot read"),
        (["--dataset", __file__], "test_command.py, line 1: not JSON"),
        (["--draft-vocab", "0"], f"draft_vocab must be between 1 and the target's {VOCAB}, got 0"),
        (["--draft-vocab", "98"], f"draft_vocab must be between 1 and the target's {VOCAB}, got 98"),
        (["--draft-layers", "6"], "draft_layers must be between 1 and the target's 5, got 6"),
        (["--window", "0"], "window must be a whole number from 1 to 1,048,576, got 0"),
        (["--window", "1000000000000"], "window must be a whole number from 1 to 1,048,576, got 1000000000000"),
        (["--anchors", "0,3,2,5"], "anchors must rise"),
        (["--anchors", "0,3"], "anchors must run from 0 to the target's 5 layers"),
        (["--max-steps", "0"], "max_steps must be above 0, got 0"),
        (["--learning-rate", "nan"], "learning_rate must be above 0, got nan"),
        (["--decay-share", "2"], "decay_share must be between 0 and 1, got 2.0"),
        (["--stages", "9"], "between 1 and the model's 5 layers, got 9"),
        (["--max-stages", "0"], "stages must be at least 1"),
        (["--seed", str(10**24)], "seed must be between 0 and 2⁶³ − 1"),
        (["--device", "meta"], "unknown device 'meta'"),
        (["--epochs", "2"], "--epochs does nothing beside --max-steps: leave it out"),
        (["--dataset", ""], "the dataset has no name"),
        (["--dataset", "/dev/null"], "/dev/null has no chats to learn from"),
        (["--num-tokens", "0"], "num_tokens must be above 0, got 0"),
        (["--max-stages", "500"], "between 1 and the model's 5 layers, got 500"),
        (["--max-tokens", "3"], "no chats to learn from: in 24, no answer begins within max_tokens=3"),
        (["--init", "/no/such/drafter"], "there is no folder '/no/such/drafter' with a trained drafter"),
        (["--init", "oracle"], "a trained drafter is a folder or a hub id such as 'someone/drafter', got 'oracle'"),
        (["--out", __file__], "test_command.py' is a file"),
        (["--out", "/proc/nothere"], "cannot write into '/proc/nothere'"),
        (["--split", "test"], "a file has no splits: leave out the split 'test'"),
        (["--tokens", "here"], "--tokens does nothing beside --dataset: leave it out"),
        (["--stages", "2", "--max-stages", "3"], "--max-stages does nothing beside --stages: leave it out"),
        (["--init", "here", "--draft-layers", "3"], "--draft-layers does nothing beside --init: leave it out"),
    ],
)
def test_errors_are_one_line(home, capsys, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.setenv("SPD_CACHE", str(home / "cache"))
    capsys.readouterr()
    assert train(home, "--out", str(home / "none"), *arguments) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert message in said
    assert said.startswith("spd_lib: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", __file__], "test_command.py' is a file"),
        (["--tokens", "/proc/nothere"], "cannot write into '/proc/nothere'"),
        (["--max-tokens", "64"], "--max-tokens does nothing without --dataset: leave it out"),
    ],
)
def test_places_are_tried_before_the_text_is_written(home, capsys, arguments: list[str], message: str) -> None:
    where = ["--target", str(home / "target"), "--out", str(home / "none"), "--device", "cpu"]
    assert main(["train", *where, *arguments]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert message in said and not (home / "none").exists()


def test_a_list_that_is_none_is_one_line_too(home, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        train(home, "--out", str(home / "none"), "--anchors", "0,x")
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert "--anchors: must be whole numbers such as 2,4,8, got '0,x'" in said


def test_training_that_fails_is_one_line(home, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPD_CACHE", str(home / "cache"))
    monkeypatch.setattr(loop, "draft_loss", lambda hidden, *_: hidden.sum() * math.nan)
    assert train(home, "--out", str(home / "none"), "--seed", "2") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("spd_lib: the loss is nan at step 0: lower the learning rate")


def test_a_drafter_of_another_shape_is_no_beginning(home, trained, capsys) -> None:
    module = load_module(trained)
    other = replace(module.config, target_layers=7, anchors=(0, 3, 7))
    PipelineDraftModule(other).save_pretrained(home / "other")
    assert train(home, "--out", str(home / "none"), "--init", str(home / "other")) == 2
    assert "the drafter was trained for" in capsys.readouterr().err


def test_a_foreign_vocabulary_is_refused(trained) -> None:
    other = copy.deepcopy(tokenizer())
    other.add_tokens(["zz"])
    with pytest.raises(DrafterError, match="another one than this target's"):
        load_module(trained, other)


def test_no_drafter_is_shipped_for_everybody() -> None:
    with pytest.raises(DrafterError, match="no drafter is shipped for 'gpt2'.*train one"):
        shipped_module("gpt2")


def test_help_needs_no_torch() -> None:
    code = "import sys\nfrom spd_lib.cli import main\ntry: main(['train', '--help'])\n"
    code += "except SystemExit: assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert "accelerate launch -m spd_lib train" in done.stdout
    assert not done.stderr
