"""The target writes what it would write alone, whatever else is written beside it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import torch

from spd_lib.target.layers import Decoder
from spd_lib.train import writer
from spd_lib.train.tokens import TokensError, load_shard
from spd_lib.train.writer import Frame, Writer, WriterConfig, write_shards
from tests.families import WINDOW, reference
from tests.train.chat import ASSISTANT, END, USER, chatty

SMALL = WriterConfig(
    rows=6, span_tokens=150, max_message_tokens=60, max_answer_tokens=14, answer_temperatures=(0.0, 1.0), seed=1
)


def some(family: str = "llama", count: int = 12, config: WriterConfig = SMALL):
    return list(islice(Writer(chatty(family), config).conversations(0), count))


def test_the_frame_is_the_templates() -> None:
    assert Frame.of(chatty()) == Frame([USER], [END, ASSISTANT], frozenset([END]))


def test_conversations_follow_the_frame() -> None:
    for chat in some():
        start = list(chat.learn).index(True)
        assert chat.ids[0] == USER
        assert list(chat.ids[start - 2 : start]) == [END, ASSISTANT]
        assert all(chat.learn[start:]) and not any(chat.learn[:start])
        assert END not in chat.ids[start:-1]
        assert len(chat.ids) - start <= SMALL.max_answer_tokens
        assert chat.temperature in (0.0, 1.0)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "softcapped"])
def test_greedy_answers_are_the_models_own(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that start late on the common clock, beside rows of another age, and beyond a sliding window."""
    begun, logits = set(), Writer._logits

    def watched(self, newest, clock, starts, memory):
        begun.update(starts.tolist())
        return logits(self, newest, clock, starts, memory)

    monkeypatch.setattr(Writer, "_logits", watched)
    config = WriterConfig(
        rows=6, span_tokens=150, max_message_tokens=60, max_answer_tokens=14, answer_temperatures=(0.0,), seed=2
    )
    chats = some(family, 12, config)
    for chat in chats:
        start = list(chat.learn).index(True)
        answer = list(chat.ids[start:])
        assert answer == reference(chatty(family).model, list(chat.ids[:start]), len(answer))
    assert max(begun) > 30
    assert max(len(chat.ids) for chat in chats) > 3 * WINDOW


def test_the_same_shard_twice_is_the_same_and_another_is_not() -> None:
    first = some()
    assert first == some()
    assert first != list(islice(Writer(chatty(), SMALL).conversations(1), 12))


def test_no_message_twice() -> None:
    messages = [tuple(chat.ids[: list(chat.learn).index(True)]) for chat in some(count=20)]
    assert len(set(messages)) == len(messages)


def test_an_answer_does_not_run_in_circles() -> None:
    config = WriterConfig(
        rows=4, span_tokens=200, max_message_tokens=60, max_answer_tokens=80, answer_temperatures=(0.0,), seed=3
    )
    for chat in some(count=6, config=config):
        answer = [token for token, flag in zip(chat.ids, chat.learn, strict=True) if flag]
        grams = [tuple(answer[i : i + 12]) for i in range(len(answer) - 11)]
        assert len(set(grams)) == len(grams)


def test_the_models_attention_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = chatty().model.config._attn_implementation
    chats = Writer(chatty(), SMALL).conversations(0)
    next(chats)
    assert chatty().model.config._attn_implementation == before
    monkeypatch.setattr(Decoder, "drive", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(chats)
    assert chatty().model.config._attn_implementation == before


def test_shards_are_kept_and_counted(tmp_path) -> None:
    first = write_shards(chatty(), tmp_path, 300, SMALL, shard_tokens=200)
    assert [path.name for path in first] == ["tokens-00000.safetensors", "tokens-00001.safetensors"]
    times = [path.stat().st_mtime_ns for path in first]
    again = write_shards(chatty(), tmp_path, 500, SMALL, shard_tokens=200)
    assert [path.stat().st_mtime_ns for path in again[:2]] == times
    assert len(again) == 3
    assert load_shard(again[2])[1]["shard"] == 2


def test_a_killed_run_loses_the_shard_it_was_writing_and_no_more(tmp_path, monkeypatch) -> None:
    whole = write_shards(chatty(), tmp_path / "whole", 600, SMALL, shard_tokens=200)
    save = writer.save_shard
    kept_ones = iter([save, save, _interrupt])
    monkeypatch.setattr(writer, "save_shard", lambda *given: next(kept_ones)(*given))
    with pytest.raises(KeyboardInterrupt):
        write_shards(chatty(), tmp_path / "parts", 600, SMALL, shard_tokens=200)
    kept = list((tmp_path / "parts").iterdir())
    assert 0 < len(kept) < len(whole)
    monkeypatch.undo()
    parts = write_shards(chatty(), tmp_path / "parts", 600, SMALL, shard_tokens=200)
    assert [path.read_bytes() for path in parts] == [path.read_bytes() for path in whole]


def _interrupt(*_) -> None:
    raise KeyboardInterrupt


def test_no_more_is_written_than_was_asked_for(tmp_path) -> None:
    (path,) = write_shards(chatty(), tmp_path, 100, SMALL)
    size = sum(len(chat.ids) for chat in load_shard(path)[0])
    assert 100 <= size < 100 + SMALL.max_message_tokens + SMALL.max_answer_tokens + 3


def test_the_shards_of_another_target_are_refused(tmp_path) -> None:
    write_shards(chatty(), tmp_path, 100, SMALL)
    with pytest.raises(TokensError, match="was written by tiny, not other: name another folder"):
        write_shards(replace(chatty(), name="other"), tmp_path, 100, SMALL)


def test_a_target_without_a_template_is_named() -> None:
    class Mute:
        name = "mute"
        tokenizer = type("Tokenizer", (), {"chat_template": None})()

    with pytest.raises(TokensError, match="mute has no chat template"):
        Frame.of(Mute())


def test_a_template_that_swallows_the_message_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chatty().tokenizer, "chat_template", "<|user|>{{ messages[0].content | lower }}<|end|>")
    with pytest.raises(TokensError, match="does not say where a message ends"):
        Frame.of(chatty())


def test_a_target_that_ends_no_message_is_named() -> None:
    config = WriterConfig(rows=4, span_tokens=12, max_message_tokens=1, opener_share=0.0, message_temperature=0.0)
    with pytest.raises(TokensError, match="tiny ended none of 4 messages within 1 tokens"):
        next(Writer(chatty(), config).conversations(0))


def test_sampling_follows_the_law() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(30_000, 1)
    heat = torch.full((30_000,), 2.0)
    drawn = writer._sample(logits, heat, torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn, minlength=3) / 30_000
    torch.testing.assert_close(shares, (logits[0] / 2).softmax(0), atol=0.01, rtol=0)
    assert writer._sample(logits, torch.zeros(30_000), torch.Generator()).unique().tolist() == [2]
