"""Earlier turns fill what they are asked to fill, are the target's own, and stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from spd_lib.evaluate.acceptance import acceptance_table, looking_back
from spd_lib.evaluate.questions import Question
from spd_lib.evaluate.texts import Sampling, write_texts
from spd_lib.target import Decoder
from spd_lib.target.load import encode_chat
from spd_lib.train.history import earlier_turns
from tests.draft.modules import tiny_module
from tests.train.chat import chatty

QUESTIONS = [Question("q0", ("abcd",)), Question("q1", ("ee",))]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPD_CACHE", str(tmp_path))
    monkeypatch.setattr("spd_lib.train.history.SHARD_TOKENS", 4000)
    return tmp_path


def added(target, history) -> int:
    return encode_chat(target, "ee", history).shape[1] - encode_chat(target, "ee").shape[1]


def test_histories_fill_the_tokens_asked_for_and_stay_the_same() -> None:
    target = chatty()
    short, long = earlier_turns(target, 3, 80), earlier_turns(target, 3, 160)
    for few, many in zip(short, long, strict=True):
        assert 50 < added(target, few) <= 80
        assert 120 < added(target, many) <= 160
        assert [turn["role"] for turn in many] == ["user", "assistant"] * (len(many) // 2)
    assert long[0] != long[1] != long[2]
    assert earlier_turns(target, 3, 160) == long


def test_no_history_is_the_question_alone() -> None:
    target = chatty()
    assert earlier_turns(target, 2, 0) == [[], []]
    with pytest.raises(ValueError, match="history must be 0 or more tokens, got -1"):
        earlier_turns(target, 2, -1)


def test_answers_follow_the_history() -> None:
    target = chatty()
    earlier = earlier_turns(target, 2, 40)
    texts = write_texts(target, QUESTIONS, Sampling(), 5, earlier)
    for question, text, history in zip(QUESTIONS, texts, earlier, strict=True):
        assert list(text.prompt_ids) == encode_chat(target, question.turns[0], history)[0].tolist()


def test_what_lies_before_the_window_makes_no_difference_and_what_lies_within_does() -> None:
    target = chatty()
    module = tiny_module(Decoder(target.model), window=8)
    texts = write_texts(target, QUESTIONS, Sampling(), 30, earlier_turns(target, 2, 60))
    cut, whole = (
        acceptance_table(target, looking_back(module, window), texts, (3,), Sampling())["stages"][0]
        for window in (8, 10**6)
    )
    assert looking_back(module, 8).config == module.config
    assert cut["judged"] and cut != whole
