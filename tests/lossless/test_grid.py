"""The program behind ``make lossless``: it resumes, it notices, it refuses to mix results of different code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spd_lib.target import Pipeline

from ..families import prompt_of, tiny
from ..results import _fingerprint, save, sources
from . import grid, real

SETTINGS = {"new_tokens": 6, "stages": [1, 3], "drafters": list(real.UNTRAINED), "prompts": ["a", "b"]}
PROMPTS = [prompt_of(3, 1), prompt_of(9, 2)]


def run(path: Path) -> dict[str, Any]:
    result = grid.start(path, SETTINGS)
    grid.run_gumbel(result, path, seeds=1)
    grid.run_greedy(result, path, tiny("llama"), PROMPTS)
    return result


def test_whole_grid_is_equal_and_saved(tmp_path: Path) -> None:
    """Every cell once, all equal, and the file holds what was returned."""
    path = tmp_path / "result.json"
    result = run(path)
    assert len(result["cases"]) == 2 * 2 * len(real.UNTRAINED)
    assert all(row["equal"] for row in result["cases"])
    assert result["gumbel"] == {"done_seeds": 1, "cases": 3 * len(real.UNTRAINED)}
    assert result["mismatches"] == []
    assert json.loads(path.read_text()) == result
    assert {"decode/engine.py", "core/simulate.py", "target/state.py"} <= set(result["sources"])


def test_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done before Ctrl-C is not done again."""
    path, calls, whole = tmp_path / "result.json", [], grid.greedy_case

    def interrupted(*arguments: Any) -> dict[str, Any]:
        if len(calls) == 7:
            calls.append("interrupted")
            raise KeyboardInterrupt
        calls.append(arguments[3:])
        return whole(*arguments)

    monkeypatch.setattr(grid, "greedy_case", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(path)
    assert len(json.loads(path.read_text())["cases"]) == 7
    assert len(run(path)["cases"]) == 2 * 2 * len(real.UNTRAINED)
    assert len(calls) == 1 + 2 * 2 * len(real.UNTRAINED)


def test_starts_anew_with_other_code(tmp_path: Path) -> None:
    """A saved result of other code is not continued."""
    path = tmp_path / "result.json"
    run(path)
    old = json.loads(path.read_text())
    assert grid.start(path, SETTINGS) == old
    old["sources"]["decode/engine.py"] = "0" * 12
    save(old, path)
    assert grid.start(path, SETTINGS)["cases"] == []


def test_notices_a_wrong_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that forget nothing: the grid reports where the text parts and how close a call that was."""
    monkeypatch.setattr(Pipeline, "rollback", lambda self, to: None)
    model, prompt = tiny("llama"), prompt_of(9, 2)
    text = grid.reference(model, prompt, 6)
    pipeline_fresh = grid.greedy_case(model, prompt, text, "oracle 1", 3)
    assert not pipeline_fresh["equal"]
    assert 0 < pipeline_fresh["differs_at"] < 6
    assert pipeline_fresh["top2_margin"] > 0


def test_a_fingerprint_is_of_the_code_alone() -> None:
    """Comments and docstrings may change, code may not."""
    code = 'def double(x):\n    """Twice x."""\n    return 2 * x\n'
    assert _fingerprint(code) == _fingerprint('def double(x):\n    """2 x"""\n\n    return 2 * x  # twice\n')
    assert _fingerprint(code) != _fingerprint(code.replace("2 *", "3 *"))
    assert "core/plan.py" in sources()
