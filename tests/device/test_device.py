"""The device checks: whole on a GPU, and on the CPU the part that takes no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import spd_lib

from ..families import VOCAB, fresh, prompt_of
from . import check_device


def test_random_integers_on_the_cpu() -> None:
    assert check_device.check_noise(torch.device("cpu"))["ok"]


def test_a_changed_integer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_device.noise, "_ROUNDS", 9)
    assert not check_device.check_noise(torch.device("cpu"))["ok"]


def test_a_wrong_text_is_noticed_and_shown_to_be_no_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = spd_lib.generate

    def wrong(*args: Any, **options: Any) -> torch.Tensor:
        sequences = honest(*args, **options)
        sequences[0, -2] = (sequences[0, -2] + 1) % VOCAB
        return sequences

    arguments = (fresh("llama"), [prompt_of(5)], (2,), 6, check_device.Clock(60))
    assert list(check_device.compare_greedy(*arguments)) == [None] * len(check_device.DRAFTERS)
    monkeypatch.setattr(spd_lib, "generate", wrong, raising=False)
    for outcome in check_device.compare_greedy(*arguments):
        assert outcome is not None and outcome["token"] == 4
        assert not outcome["near_tie"] and outcome["margin"] > outcome["noise"] > 0


def test_time_that_is_over_is_said() -> None:
    outcomes = check_device.compare_greedy(fresh("llama"), [prompt_of(5)], (2,), 6, check_device.Clock(-1))
    assert check_device._tally(outcomes, ties_allowed=True) == {
        "ok": False,
        "cases": 0,
        "equal": 0,
        "differing": [],
        "out_of_time": True,
    }


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_everything_on_the_gpu(tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    assert check_device.main(["--device", "cuda", "--out", str(out)]) == 0, out.read_text()
    assert json.loads(out.read_text())["reduced"] is False
