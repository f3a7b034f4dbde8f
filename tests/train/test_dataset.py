"""Chats that others wrote: which columns, which answers, which errors."""

from __future__ import annotations

import builtins
import json

import pytest

from spd_lib.train.dataset import conversation, dataset_corpus, messages_of, read_chats
from spd_lib.train.tokens import TokensError
from tests.train.chat import ASSISTANT, END, USER, tokenizer

TURNS = [
    {"role": "user", "content": "abac"},
    {"role": "assistant", "content": "adae"},
    {"role": "user", "content": "af"},
    {"role": "assistant", "content": "ag"},
]


def test_the_answers_are_what_is_learnt() -> None:
    chat = conversation(tokenizer(), TURNS, 100)
    assert list(chat.ids) == [USER, 1, 2, END, ASSISTANT, 3, 4, END, USER, 5, END, ASSISTANT, 6, END]
    learnt = [token for token, flag in zip(chat.ids, chat.learn, strict=True) if flag]
    assert learnt == [3, 4, END, 6, END]


def test_long_chats_are_cut() -> None:
    chat = conversation(tokenizer(), TURNS, 7)
    assert list(chat.ids) == [USER, 1, 2, END, ASSISTANT, 3, 4]
    with pytest.raises(TokensError, match="no answer begins within max_tokens=5"):
        conversation(tokenizer(), TURNS, 5)
    for without in (TURNS[:1], TURNS[1:3], []):
        with pytest.raises(TokensError, match="no assistant's turn follows a user's"):
            conversation(tokenizer(), without, 100)


def test_an_answer_that_nobody_asked_for_is_not_learnt() -> None:
    chat = conversation(tokenizer(), TURNS[1:], 100)
    assert [token for token, flag in zip(chat.ids, chat.learn, strict=True) if flag] == [6, END]


def test_a_template_that_rewrites_the_past_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = "{% for m in messages[-2:] %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    monkeypatch.setattr(tokenizer(), "chat_template", forgetful)
    with pytest.raises(TokensError, match="changes earlier turns"):
        conversation(tokenizer(), TURNS, 100)


def test_a_template_that_refuses_a_chat_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer(), "chat_template", "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TokensError, match="refuses this chat: roles must alternate"):
        conversation(tokenizer(), TURNS, 100)


def test_a_tokenizer_without_a_template_is_named(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer(), "chat_template", None)
    with pytest.raises(TokensError, match="no chat template"):
        list(dataset_corpus(tokenizer(), str(tmp_path / "chats.jsonl"), 100, 64))


def test_columns_and_roles_in_use() -> None:
    assert messages_of({"messages": TURNS}) == TURNS
    old = [{"from": "human", "value": "abac"}, {"from": "gpt", "value": "adae"}]
    assert messages_of({"conversations": old}) == TURNS[:2]
    assert messages_of({"messages": [*TURNS, {"role": "assistant", "content": None}]}) == []
    assert messages_of({"messages": [{"role": "user", "content": [{"type": "image"}]}]}) == []


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "abac", "source": "web"}, "a chat needs a column messages or conversations, found text, source"),
        ([], "a chat needs a column messages or conversations, found list"),
        ({"messages": "abac"}, "messages must be a list of turns with role and content, found str"),
        ({"messages": ["abac", 3]}, "messages must be a list of turns with role and content, found int, str"),
        ({"messages": [{"content": "abac"}]}, "a turn needs role and content, found content"),
        ({"messages": [{}]}, "a turn needs role and content, found none"),
        ({"messages": [{"role": None, "content": "ab"}]}, "a role must be a text such as user or assistant, got None"),
        ({"messages": [{"role": "\ud800", "content": "ab"}]}, "half a character"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "half a character"),
    ],
)
def test_what_is_no_chat_is_named_with_its_place(tmp_path, record, message: str) -> None:
    with pytest.raises(TokensError, match=message):
        messages_of(record)
    path = tmp_path / "chats.jsonl"
    path.write_text(f"{json.dumps({'messages': TURNS})}\n\n{json.dumps(record)}\n")
    with pytest.raises(TokensError, match=f"chats.jsonl, line 3: .*{message}"):
        list(dataset_corpus(tokenizer(), str(path), 10_000, 64))


def test_chats_that_are_left_out_are_counted(tmp_path, capsys) -> None:
    path = tmp_path / "chats.jsonl"
    picture = [TURNS[0], {"role": "assistant", "content": None}]
    path.write_text("\n".join(json.dumps({"messages": turns}) for turns in (TURNS, picture, TURNS)))
    assert len(list(dataset_corpus(tokenizer(), str(path), 10_000, 64))) == 2
    said = capsys.readouterr().err
    assert said == f"some chats of {path} are left out: in 1, no assistant's turn follows a user's\n"


def test_a_file_without_answers_says_why(tmp_path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("")
    with pytest.raises(TokensError, match="chats.jsonl has no chats to learn from$"):
        list(dataset_corpus(tokenizer(), str(path), 100, 64))
    chats = [{"messages": []}, {"messages": TURNS[:1]}, {"messages": TURNS}]
    path.write_text("\n".join(map(json.dumps, chats)))
    why = "in 2, no assistant's turn follows a user's; in 1, no answer begins within max_tokens=2"
    with pytest.raises(TokensError, match=f"chats.jsonl has no chats to learn from: {why}"):
        list(dataset_corpus(tokenizer(), str(path), 100, 2))


@pytest.mark.parametrize("name", ["chats.json", "./chats", "/no/chats", "~/no/chats", "a/chats.parquet"])
def test_a_mistyped_file_is_no_dataset(name: str) -> None:
    with pytest.raises(TokensError, match="there is no file .* of chats"):
        list(read_chats(name))


def test_a_file_of_chats(tmp_path) -> None:
    path = tmp_path / "chats.jsonl"
    silent, long = TURNS[:1], [{"role": "user", "content": "ab" * 90}, TURNS[1]]
    lines = [json.dumps({"messages": turns}) for turns in (TURNS, silent, long, TURNS[:2])]
    path.write_text("\n".join([*lines, ""]))
    assert len(list(dataset_corpus(tokenizer(), str(path), 10_000, 64))) == 2
    assert len(list(dataset_corpus(tokenizer(), str(path), 1, 64))) == 1
    odd = json.dumps({"messages": [TURNS[0], {"role": "assistant", "content": "ab\u2028cd"}]}, ensure_ascii=False)
    path.write_text("\ufeff" + odd, encoding="utf-8")
    assert [place for place, _ in read_chats(str(path))] == [f"{path}, line 1"], (
        "a byte order mark and a line separator within a text"
    )
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(TokensError, match="cannot read .*chats.jsonl"):
        list(read_chats(str(path)))
    for nonsense in ("{broken", "[" * 100_000):
        path.write_text(f"{lines[0]}\n{nonsense}\n")
        with pytest.raises(TokensError, match="chats.jsonl, line 2: not JSON"):
            list(read_chats(str(path)))
    with pytest.raises(TokensError, match="cannot read .*nowhere.jsonl"):
        list(read_chats(str(tmp_path / "nowhere.jsonl")))


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *rest, **options):
        if name == "datasets":
            raise ImportError(name)
        return found(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TokensError, match="pip install datasets"):
        list(read_chats("someone/chats"))
