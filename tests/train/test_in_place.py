"""A page of the book finds a drafter for its target, trains one, or says which command does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from spd_lib.draft.pretrained import DrafterError, shipped_module, vocabulary_fingerprint
from spd_lib.target import Decoder
from spd_lib.train import in_place
from tests.draft.modules import tiny_module
from tests.train.chat import chatty


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPD_CACHE", str(tmp_path))
    return tmp_path


def test_smollm2_has_a_shipped_one_and_committed_texts() -> None:
    target = replace(chatty(), name="smollm2")
    assert in_place.drafter_for(target).config == shipped_module().config
    assert in_place.training_texts(target)


def test_on_a_cpu_the_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DrafterError, match=r"python -m spd_lib train --target tiny --out .*drafters"):
        in_place.drafter_for(chatty())
    assert capsys.readouterr().out == "No drafter is shipped for tiny.\n"
    assert in_place.training_texts(chatty()) == []


def test_elsewhere_it_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target, calls = chatty(), []

    def train(arguments) -> None:
        calls.append(arguments)
        tiny_module(Decoder(target.model), tokenizer=vocabulary_fingerprint(target.tokenizer)).save_pretrained(
            arguments.out
        )

    monkeypatch.setattr(in_place, "add_train", lambda parser: (ADD(parser), parser.set_defaults(run=train)))
    gpu = SimpleNamespace(name=target.name, model=target.model, tokenizer=target.tokenizer, device=torch.device("cuda"))
    first, second = in_place.drafter_for(gpu), in_place.drafter_for(gpu)
    assert len(calls) == 1 and calls[0].device == "cuda" and calls[0].target == "tiny"
    torch.testing.assert_close(first.state_dict(), second.state_dict())


ADD = in_place.add_train
