"""The command from end to end, on a tiny model in a folder."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open

import spd_lib
from spd_lib.cli import main
from spd_lib.draft.shipped import DrafterError, load_module, shipped_module
from tests.families import prompt_of
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
    small = ["--draft-vocab", "60", "--window", "16", "--batch-tokens", "200", "--max-steps", "4"]
    return main(["train", *fixed, *small, *more])


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
    from spd_lib.train.loop import Trainer

    monkeypatch.setattr(Trainer, "_update", lambda *_: 1 / 0)
    before = (trained / "model.safetensors").read_bytes()
    assert train(home, "--out", str(trained)) == 0
    assert (trained / "model.safetensors").read_bytes() == before


def test_training_goes_on_from_given_weights(home, trained) -> None:
    assert train(home, "--out", str(home / "more"), "--init", str(trained)) == 0
    assert (home / "more" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "/no/such/target"], "there is no folder"),
        (["--dataset", "/no/such.jsonl"], "cannot read"),
        (["--draft-vocab", "0"], "draft_vocab_size must be at least 1, got 0"),
        (["--anchors", "0,3,2,5"], "anchors must rise"),
        (["--max-steps", "0"], "max_steps must be above 0, got 0"),
        (["--stages", "9"], "between 1 and the model's 5 layers, got 9"),
        (["--num-tokens", "0"], "num_tokens must be above 0, got 0"),
        (["--init", "/no/such/drafter"], "drafter"),
    ],
)
def test_errors_are_one_line(home, capsys, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.setenv("SPD_CACHE", str(home / "cache"))
    assert train(home, "--out", str(home / "none"), *arguments) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in said
    assert said.startswith("spd_lib: ")


def test_a_foreign_vocabulary_is_refused(trained) -> None:
    import copy

    other = copy.deepcopy(tokenizer())
    other.add_tokens(["zz"])
    with pytest.raises(DrafterError, match="another one than this target's"):
        load_module(trained, other)


def test_no_drafter_is_shipped_for_everybody() -> None:
    with pytest.raises(DrafterError, match="no drafter is shipped for 'gpt2'.*train one"):
        shipped_module("gpt2")


def test_help_needs_no_torch() -> None:
    code = "import sys\nfrom spd_lib.cli import _parser\n_parser().format_help()\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
