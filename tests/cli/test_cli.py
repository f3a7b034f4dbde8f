"""The command line: what it prints, where, and with which exit code. Processes are few: each start costs seconds."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spd_lib
from spd_lib import cli, terminal
from spd_lib.core import Trace
from spd_lib.draft import NAMED_DRAFTERS
from spd_lib.target.layers import Decoder
from spd_lib.target.load import Target, encode_chat, load
from tests.draft.modules import deep_llama, tiny_module

FRANCE = "What is the capital of France?"
COMMAND = [sys.executable, "-m", "spd_lib"]

# Runs several command lines in one process and prints [exit code, stdout, stderr] of each.
SESSION = """
import contextlib, io, json, sys
from spd_lib.cli import main
results = []
for argv in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = stop.code
    results.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


def _session(*command_lines: list[str]) -> list[tuple[int, str, str]]:
    code = [sys.executable, "-c", SESSION]
    done = subprocess.run(code, input=json.dumps(command_lines), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A parent that runs in the background of a shell ignores Ctrl-C, and would pass that on.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen([*COMMAND, *arguments], text=True, preexec_fn=heed, **(pipes | options))


@pytest.fixture(scope="module")
def target() -> Target:
    return load("smollm2", device="cpu")


def test_help_needs_no_torch_and_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    (code, text, errors), (_, generate, _), (_, version, _) = _session(
        ["--help"], ["generate", "--help"], ["--version"]
    )
    assert (code, errors) == (0, "") and "examples:" in text
    assert version.strip() == f"spd_lib {spd_lib.__version__}"
    for word in ["--seed", "--json", "--trace", "gumbel", "rejection", "balanced", "examples:", *NAMED_DRAFTERS]:
        assert word in generate
    probe = "import sys, spd_lib.cli as cli; cli._parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


def test_json_is_what_generate_gives_and_the_seed_repeats_it(target: Target) -> None:
    sampled = ["generate", FRANCE, "--temperature", "0.8", "--top-k", "40", "--max-new-tokens", "12", "--json"]
    (code, out, errors), (_, again, _), (_, other, _) = _session(
        [*sampled, "--seed", "7"],
        [*sampled, "--seed", "7", "--stages", "3", "--drafter", "random"],
        [*sampled, "--seed", "8"],
    )
    assert (code, errors) == (0, "")
    report = json.loads(out)
    assert report["text"] == json.loads(again)["text"], "gumbel: neither drafter nor stages change the text"
    assert report["text"] != json.loads(other)["text"]
    prompt = encode_chat(target, FRANCE)
    ids = spd_lib.generate(target.model, prompt, max_new_tokens=12, temperature=0.8, top_k=40, seed=7)
    assert report["token_ids"] == ids[0, prompt.shape[1] :].tolist()
    assert report["text"] == target.tokenizer.decode(report["token_ids"], skip_special_tokens=True)
    assert report["prompt_tokens"] == prompt.shape[1] and report["seed"] == 7
    assert report["metrics"]["num_tokens"] == len(report["token_ids"])
    assert {"torch", "transformers", "spd_lib", "python"} <= set(report["versions"])
    assert report["settings"]["target"] == "smollm2" and report["settings"]["num_stages"] == 4


def test_errors_are_one_line(tmp_path: Path) -> None:
    foreign = tmp_path / "drafter"
    tiny_module(Decoder(deep_llama())).save_pretrained(foreign)
    no_tokens = tmp_path / "no_tokens.json"
    cycle = {"stages": [[0]], "draft": 1, "verdicts": [], "flushed": [], "spans": []}
    trace = {"num_stages": 1, "prompt_length": 1, "tokens": [], "cycles": [cycle], "stop_reason": "eos", "notes": {}}
    no_tokens.write_text(json.dumps({"format": "spd-trace", **trace}))
    wrong = {
        "unknown drafter 'nope'": ["generate", "hi", "--drafter", "nope"],
        "trained for the vocabulary of tiny, which is another one": ["generate", "hi", "--drafter", str(foreign)],
        "is a folder: name a file in it": ["generate", "hi", "--trace", str(tmp_path)],
        "cannot write into '/proc/no'": ["generate", "hi", "--trace", "/proc/no/run.json"],
        "top_k must be": ["generate", "hi", "--top-k", "-1", "--trace", str(tmp_path / "run.json")],
        "temperature must be a number ≥ 0": ["generate", "hi", "--temperature", "-1"],
        "num_stages must be between 1 and the model's 30 layers, got 99": ["generate", "hi", "--stages", "99"],
        "unknown plan 'odd'": ["generate", "hi", "--plan", "odd"],
        "the plan covers 6 layers": ["generate", "hi", "--plan", "3,3"],
        "the plan has 2 stages, num_stages is 4": ["generate", "hi", "--plan", "15,15", "--stages", "4"],
        "unknown coupling 'dice'": ["generate", "hi", "--coupling", "dice"],
        "unknown device 'gpu'": ["generate", "hi", "--device", "gpu"],
        "no folder './nowhere'": ["generate", "hi", "--target", "./nowhere"],
        "an empty prompt": ["generate", "", "--no-chat"],
        "argument --seed": ["generate", "hi", "--seed", "x"],
        "arguments are required: PROMPT": ["generate"],
        "arguments are required: COMMAND": [],
        "No such file": ["trace", str(tmp_path / "none.json")],
        "is not a Trace": ["trace", __file__],
        "no_tokens.json is not a Trace": ["trace", str(no_tokens)],
        "is what is read here": ["trace", str(no_tokens), "--perfetto", str(no_tokens)],
        "the prompt is not UTF-8": ["generate", "a\udcff"],
    }
    for words, (code, out, errors) in zip(wrong, _session(*wrong.values()), strict=True):
        assert code == 2 and out == "" and words in errors and errors.count("\n") == 1, (words, code, out, errors)
    assert sorted(tmp_path.iterdir()) == [foreign, no_tokens], "what fails leaves no file behind"


def test_piped_text_is_plain_and_the_run_is_saved(tmp_path: Path) -> None:
    saved, timeline = tmp_path / "run.json", tmp_path / "run.perfetto.json"
    run = _start("generate", "-", "--stages", "3", "--trace", str(saved))
    text, errors = run.communicate(f"{FRANCE}\n", timeout=120)
    assert (run.returncode, text) == (0, "The capital of France is Paris.\n")
    assert errors.count("\n") == 1 and "\x1b" not in errors
    for words in ("N = 8 tokens", "of 3 stages", "acceptance", "L'_acc = ", "tokens/s", "ended by eos"):
        assert words in errors
    trace = Trace.from_json(saved.read_text())
    assert "".join(trace.tokens[uid].text for uid in trace.committed) == "The capital of France is Paris.<|im_end|>"
    assert str(Path.home()) not in saved.read_text(), "a saved run names the model, not a place on this machine"
    assert cli.main(["trace", str(saved), "--perfetto", str(timeline)]) == 0
    assert json.loads(timeline.read_text())["traceEvents"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_prints_and_saves_what_was_committed(tmp_path: Path, number: int) -> None:
    saved = tmp_path / "run.json"
    story = ["generate", "Tell me a very long story about the sea.", "--max-new-tokens", "2000"]
    run = _start(*story, "--trace", str(saved))
    first = run.stdout.read(1)
    run.send_signal(number)
    text, errors = run.communicate(timeout=60)
    assert run.returncode == 130 and first.strip() and text.endswith("\n")
    assert "ended by interrupted" in errors and errors.count("\n") == 1
    assert Trace.from_json(saved.read_text()).stop_reason == "interrupted"


def test_reader_that_stops_reading_is_no_error() -> None:
    run = _start("generate", "Tell me a very long story about the sea.", "--max-new-tokens", "2000")
    run.stdout.read(1)
    run.stdout.close()
    assert run.wait(timeout=60) == cli.BROKEN_PIPE and run.stderr.read() == ""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a POSIX terminal")
def test_colours_in_a_terminal() -> None:
    ours, theirs = os.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    run = _start("generate", FRANCE, "--drafter", "oracle", "--stages", "2", stdout=theirs, env=environment)
    _, errors = run.communicate(timeout=120)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert run.returncode == 0 and "\x1b[36m Paris\x1b[0m" in text and "\x1b[1;33m" not in text
    assert "accepted" in errors.splitlines()[-1] and "corrected" in errors.splitlines()[-1]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colour_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.in_colour(Terminal()) and not terminal.in_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.in_colour(Terminal())


@pytest.mark.parametrize("text", ["naïve café 🙂🙂 twice", "汉字 and\n\n  spaces ", "half a 🙂"])
def test_stream_never_shows_half_a_character(target: Target, text: str) -> None:
    ids = target.tokenizer(text).input_ids
    out = io.StringIO()
    stream = terminal.TokenStream(target.tokenizer, out, colour=False)
    for token_id in ids:
        stream.commit(token_id, "draft")
        assert "\N{REPLACEMENT CHARACTER}" not in out.getvalue() and text.startswith(out.getvalue())
    stream.end()
    assert out.getvalue() == text + "\n"


def test_stream_shows_half_a_character_at_the_end(target: Target) -> None:
    ids = target.tokenizer("🙂").input_ids
    assert len(ids) > 1
    out = io.StringIO()
    stream = terminal.TokenStream(target.tokenizer, out, colour=True)
    stream.commit(ids[0], "correction")
    assert out.getvalue() == ""
    stream.end()
    assert out.getvalue() == "\x1b[1;33m\N{REPLACEMENT CHARACTER}\x1b[0m\n"
