"""What `make train SCALE=small` says about the drafter it has made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import small_training  # noqa: E402

ENTRY = {"step": 350, "loss": 2.0, "n=4": {"agreement": {}, "acceptance": 0.4}, "n=16": {"acceptance": 0.38}}


@pytest.fixture
def run(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Runs the program on a log with one entry."""
    monkeypatch.setattr(small_training, "LOG", tmp_path / "log.jsonl")
    monkeypatch.setattr(small_training, "RESULT", tmp_path / "train-small.json")

    def with_entry(entry: dict, *arguments: str) -> int:
        (tmp_path / "log.jsonl").write_text(json.dumps(entry) + "\n")
        monkeypatch.setattr(sys, "argv", ["small_training.py", *arguments])
        return small_training.main()

    return with_entry


def test_a_run_is_compared_with_the_committed_one(run, capsys) -> None:
    assert run(ENTRY) == 1
    assert "no committed figures yet" in capsys.readouterr().out
    assert run(ENTRY, "--save") == 0
    assert run(ENTRY | {"loss": 2.039}) == 0
    assert run(ENTRY | {"loss": 2.041}) == 1
    assert run(ENTRY | {"n=4": {"acceptance": 0.379}}) == 1
    assert run(ENTRY | {"loss": float("nan")}) == 1
    capsys.readouterr()
    assert run(ENTRY | {"n=16": {"acceptance": 0.41}}) == 1
    assert capsys.readouterr().out.splitlines() == [
        "loss   2.0000, committed 2.0000: fine",
        "n=4    0.4000, committed 0.4000: fine",
        "n=16   0.4100, committed 0.3800: NOT within tolerance",
    ]


def test_what_is_committed_says_where_it_comes_from(run) -> None:
    run(ENTRY, "--save")
    saved = json.loads(small_training.RESULT.read_text())
    assert saved["figures"] == {"loss": 2.0, "n=4": 0.4, "n=16": 0.38}
    assert set(saved) == {"command", "date", "machine", "versions", "figures"}
