"""Answers are the target's own, are written once, and survive a kill; the headline stops at a repeat."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spd_lib.evaluate import texts as module
from spd_lib.evaluate.questions import Question
from spd_lib.evaluate.texts import Sampling, Text, fingerprint, write_texts
from spd_lib.target.load import encode_chat
from tests.families import reference
from tests.train.chat import END, chatty

QUESTIONS = [Question(f"q{index}", (words,)) for index, words in enumerate(("abcd", "ee", "fagb", "jjihcc"))]
SAMPLED = Sampling(1.0, seed=3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPD_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The prompts that were really answered, not found in the cache."""
    made: list[tuple[int, ...]] = []
    plain = module.autoregressive

    def counting(pipeline, sampler, prompt, *rest):
        made.append(tuple(prompt))
        return plain(pipeline, sampler, prompt, *rest)

    monkeypatch.setattr(module, "autoregressive", counting)
    return made


def files(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "texts").rglob("*") if path.is_file())


def test_greedy_answers_are_the_models_own() -> None:
    target = chatty()
    for question, text in zip(QUESTIONS, write_texts(target, QUESTIONS, Sampling(), 20), strict=True):
        prompt = encode_chat(target, question.turns[0])[0].tolist()
        alone = reference(target.model, prompt, 20)
        if END in alone:
            alone = alone[: alone.index(END) + 1]
        assert (text.prompt_ids, text.new_ids) == (tuple(prompt), tuple(alone))
        assert text.stop_reason == ("eos" if alone[-1] == END else "budget")
        assert (text.question_id, text.category, text.budget) == (question.question_id, "all", 20)


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_a_killed_run_loses_one_answer(cache: Path, calls, monkeypatch: pytest.MonkeyPatch, sampling) -> None:
    whole = write_texts(chatty(), QUESTIONS, sampling, 12)
    for path in files(cache):
        path.unlink()
    calls.clear()
    counting, third = module.autoregressive, whole[2].prompt_ids

    def killed(pipeline, sampler, prompt, *rest):
        trace = counting(pipeline, sampler, prompt, *rest)
        if tuple(prompt) == third:
            raise KeyboardInterrupt
        return trace

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "autoregressive", killed)
        write_texts(chatty(), QUESTIONS, sampling, 12)
    assert len(files(cache)) == 2 and all(path.suffix == ".json" for path in files(cache))
    calls.clear()
    assert write_texts(chatty(), QUESTIONS, sampling, 12) == whole
    assert calls == [text.prompt_ids for text in whole[2:]]
    calls.clear()
    assert write_texts(chatty(), QUESTIONS, sampling, 12) == whole
    assert calls == []


def test_a_half_written_file_is_no_answer(cache: Path, calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self, *_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(Path, "replace", full)
        write_texts(chatty(), QUESTIONS[:1], Sampling(), 12)
    calls.clear()
    write_texts(chatty(), QUESTIONS[:1], Sampling(), 12)
    assert len(calls) == 1


def test_what_decides_a_text_is_in_its_key(calls) -> None:
    """Each of these is written anew; to a greedy answer, seed and row do not matter."""
    target = chatty()
    ask = [QUESTIONS[0]]
    shifted = copy.deepcopy(target.model)
    shifted.model.layers[3].mlp.down_proj.weight += 0.01
    for other, sampling, budget in (
        (target, Sampling(), 12),
        (target, Sampling(), 13),
        (target, Sampling(1.0, 3), 12),
        (target, Sampling(1.0, 4), 12),
        (target, Sampling(0.9, 3), 12),
        (target, Sampling(1.0, 3, top_k=4), 12),
        (replace(target, name="another"), Sampling(), 12),
        (replace(target, model=shifted), Sampling(), 12),
        (replace(target, model=copy.deepcopy(target.model).to(torch.bfloat16)), Sampling(), 12),
    ):
        calls.clear()
        write_texts(other, ask, sampling, budget)
        assert len(calls) == 1
    calls.clear()
    write_texts(target, [QUESTIONS[1], QUESTIONS[0]], Sampling(0.0, 99), 12)
    assert len(calls) == 1, "only the new question"
    calls.clear()
    write_texts(target, [QUESTIONS[1], QUESTIONS[0]], SAMPLED, 12)
    assert len(calls) == 2, "a sampled answer has the random numbers of its row"


def test_the_fingerprint_sees_every_tensor() -> None:
    """Also where only a part of it differs."""
    model = copy.deepcopy(chatty().model)
    seen = {fingerprint(model)}
    for parameter in model.parameters():
        parameter[len(parameter) // 2 :] += 1e-3
        seen.add(fingerprint(model))
    assert len(seen) == 1 + len(list(model.parameters()))
    assert fingerprint(chatty().model) in seen


def test_a_question_that_leaves_no_room_is_found_first(calls) -> None:
    long = Question("long", ("ab" * 120,))
    with pytest.raises(ValueError, match="question 'long': .* prompt tokens and max_new_tokens=12 exceed the model's"):
        write_texts(chatty(), [QUESTIONS[0], long], Sampling(), 12)
    assert calls == []


@pytest.mark.parametrize(("temperature", "top_p"), [(-1.0, None), (float("nan"), None), (1.0, 1.5)])
def test_impossible_sampling(temperature: float, top_p: float | None) -> None:
    with pytest.raises(ValueError, match="must be"):
        Sampling(temperature, top_p=top_p)


@pytest.mark.parametrize(
    ("new_ids", "counted"),
    [
        (range(20), 20),
        ((*range(20), *range(3, 15)), 20),
        ((*range(20), *range(3, 14)), 31),  # eleven in a row are no 12-gram
        ((*range(20), 99, *range(12), 50), 21),
        ((7,) * 12, 12),
        ((7,) * 13, 1),  # the second occurrence starts one token later
        ((), 0),
    ],
)
def test_the_headline_counts_up_to_the_first_repeat(new_ids, counted: int) -> None:
    assert Text("q", "all", 0, (1,), tuple(new_ids), 128, "budget").counted == counted


def test_repeating_the_prompt_is_no_repeat() -> None:
    words = tuple(range(15))
    assert Text("q", "all", 0, words, words, 128, "budget").counted == 15
