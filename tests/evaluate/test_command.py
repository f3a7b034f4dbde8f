"""The command from end to end, on a tiny target and a tiny drafter in folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spd_lib.cli import main
from spd_lib.draft.pretrained import vocabulary_fingerprint
from spd_lib.evaluate import texts as texts_module
from spd_lib.target.layers import Decoder
from tests.draft.modules import tiny_module
from tests.train.chat import chatty, tokenizer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a drafter, and questions."""
    folder = tmp_path_factory.mktemp("acceptance")
    chatty().model.save_pretrained(folder / "target")
    tokenizer().save_pretrained(folder / "target")
    settings = {"tokenizer": vocabulary_fingerprint(tokenizer()), "draft_vocab_size": 90}
    tiny_module(Decoder(chatty().model), **settings).save_pretrained(folder / "drafter")
    tiny_module(Decoder(chatty().model), (0, 4), target_layers=4, **settings).save_pretrained(folder / "foreign")
    rows = [{"question_id": i, "turns": [2 * "abcdefgh"[i]], "category": "xy"[i % 2]} for i in range(4)]
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(autouse=True)
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPD_CACHE", str(home / "cache"))


def acceptance(home: Path, *more: str) -> int:
    fixed = ["--target", str(home / "target"), "--drafter", str(home / "drafter"), "--device", "cpu"]
    small = ["--questions", str(home / "asked.jsonl"), "--max-new-tokens", "16", "--stages", "2,5"]
    return main(["acceptance", *fixed, *small, *more])


def test_a_table_for_people(home: Path, capsys: pytest.CaptureFixture) -> None:
    assert acceptance(home, "--limit", "3") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split()[-2:] == ["x", "y"]
    assert "3 answers" in said.out and "answering" not in said.out
    assert "answering" in said.err and "replaying" in said.err


def test_json_says_where_it_comes_from(home: Path, capsys: pytest.CaptureFixture) -> None:
    out = home / "results" / "table.json"
    assert acceptance(home, "--json", "--save", str(out), "--temperature", "1", "--coupling", "rejection") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(out.read_text())
    assert {"command", "date", "machine", "versions", "seed", "bootstrap_seed"} <= set(printed)
    assert {"device", "cores", "threads"} == set(printed["machine"])
    assert (printed["coupling"], printed["temperature"], printed["dtype"]) == ("rejection", 1.0, "float32")
    assert len(printed["drafter"]) == len(printed["questions_digest"]) == 16
    assert [row["n"] for row in printed["stages"]] == [2, 5]


def test_numbers_repeat(home: Path, capsys: pytest.CaptureFixture) -> None:
    tables = []
    for _ in range(2):
        assert acceptance(home, "--json", "--temperature", "1", "--coupling", "rejection") == 0
        tables.append(json.loads(capsys.readouterr().out))
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "/no/such/target"], "there is no folder"),
        (["--drafter", "/no/such/drafter"], "there is no folder '/no/such/drafter' with a trained drafter"),
        (["--drafter", "prompt-lookup"], "a trained drafter is shipped, a folder or a hub id, got 'prompt-lookup'"),
        (["--drafter", ""], "a trained drafter is shipped, a folder or a hub id, got ''"),
        (["--drafter", "someone/drafter"], "there is no folder 'someone/drafter', and the hub gives no such drafter"),
        (["--drafter", "foreign"], "the drafter was trained for tiny"),
        (["--questions", "/no/such.jsonl"], "cannot read the questions in /no/such.jsonl"),
        (["--limit", "0"], "limit must be above 0, got 0"),
        (["--stages", "2,9"], "between 1 and the model's 5 layers, got 9"),
        (["--temperature", "-1"], "temperature must be"),
        (["--seed", "-1"], "seed must be between"),
        (["--max-new-tokens", "0"], "max_new_tokens must be"),
        (["--max-new-tokens", "500"], "exceed the model's 128 positions"),
        (["--save", "/proc/no/table.json"], "cannot write into '/proc/no'"),
        (["--save", "."], "'.' is a folder: name a file in it"),
        (["--save", "asked.jsonl"], "'asked.jsonl' is what is read here: name another file to write"),
        (["--save", ""], "'.' is a folder: name a file in it"),
    ],
)
def test_errors_are_one_line_and_come_first(home, capsys, monkeypatch, arguments: list[str], message: str) -> None:
    """Before the first answer is written."""
    monkeypatch.chdir(home)
    monkeypatch.setattr(texts_module._Writer, "_name", lambda self: "untouched")
    assert acceptance(home, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    last = said.err.strip().splitlines()[-1]
    assert last.startswith("spd_lib: ") and message in last
    assert not list((home / "cache/texts").glob("untouched/*"))


def test_an_error_leaves_no_file(home: Path) -> None:
    out = home / "none.json"
    assert acceptance(home, "--save", str(out), "--max-new-tokens", "0") == 2
    assert not out.exists()


@pytest.mark.parametrize("damage", ["", "{}", '{"new_ids": [1, 2', '{"new_ids": [100000], "stop_reason": "eos"}', "7"])
def test_a_damaged_answer_is_written_anew(home: Path, capsys: pytest.CaptureFixture, damage: str) -> None:
    tables = []
    for _ in range(2):
        assert acceptance(home, "--json") == 0
        tables.append(json.loads(capsys.readouterr().out))
        for path in (home / "cache/texts").glob("*/*.json"):
            path.write_text(damage)
    assert tables[0] == tables[1]


def test_a_stage_named_twice_is_measured_once(home: Path, capsys: pytest.CaptureFixture) -> None:
    assert acceptance(home, "--stages", "3,2,3", "--json") == 0
    assert [row["n"] for row in json.loads(capsys.readouterr().out)["stages"]] == [3, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_keeps_the_answers(home, capsys, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("SPD_CACHE", str(home / f"stopped-{number}"))
    written = texts_module._Writer._write

    def stops(self, path: Path, row: int, prompt: list[int]) -> None:
        if row == 2:
            os.kill(os.getpid(), number)
        written(self, path, row, prompt)

    monkeypatch.setattr(texts_module._Writer, "_write", stops)
    out, before = home / f"stopped-{number}.json", signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # a parent that runs in the background of a shell ignores Ctrl-C, and would pass that on
        assert acceptance(home, "--save", str(out)) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr()
    assert said.out == "" and said.err.splitlines()[-1].startswith("stopped; the answers written so far are kept")
    assert not out.exists() and len(list((home / f"stopped-{number}").rglob("*.json"))) == 2


def test_stages_must_be_numbers(home: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        acceptance(home, "--stages", "2,x")
    assert stopped.value.code == 2
    assert "argument --stages: must be whole numbers such as 2,4,8, got '2,x'" in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    code = "import sys\nfrom spd_lib.cli import _parser\n_parser().format_help()\nassert 'torch' not in sys.modules"
    code = f"import spd_lib.evaluate.command\n{code}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
