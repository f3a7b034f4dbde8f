"""Shards keep conversations; a corpus splits them; the draft vocabulary counts them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from spd_lib.train import tokens
from spd_lib.train.tokens import Conversation, Corpus, TokensError, check_ids, draft_vocabulary, load_shard, save_shard
from tests.families import VOCAB
from tests.train.chat import chatty


def chat(*ids: int, answer: int = 2) -> Conversation:
    return Conversation(list(ids), [i >= len(ids) - answer for i in range(len(ids))], 0.5)


@pytest.mark.parametrize("largest", [90, 70_000, 2**16 - 1, 2**16])
def test_a_shard_gives_back_what_it_got(tmp_path, largest: int) -> None:
    chats = [chat(1, 2, 3, largest), chat(5, 6), chat(7, 8, 9)]
    save_shard(tmp_path / "a" / "tokens.safetensors", chats, {"seed": 3})
    assert load_shard(tmp_path / "a" / "tokens.safetensors") == (chats, {"seed": 3})
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["tokens.safetensors"]


def test_a_broken_shard_is_named(tmp_path) -> None:
    path = tmp_path / "tokens.safetensors"
    path.write_bytes(b"not a shard")
    with pytest.raises(TokensError, match="tokens.safetensors is not a file of training tokens"):
        load_shard(path)
    with pytest.raises(TokensError, match="nowhere"):
        load_shard(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changed", "notes", "message"),
    [
        ({"lengths": torch.tensor([2, 9])}, "{}", "its lengths must be above 0 and add up to its 5 ids, not 11"),
        ({"lengths": torch.tensor([5, 0])}, "{}", "its lengths must be above 0 and add up to its 5 ids, not 5"),
        ({"learn": torch.ones(4, dtype=torch.bool)}, "{}", "one flag an id"),
        ({"temperatures": torch.zeros(3)}, "{}", "one temperature a conversation"),
        ({"ids": torch.zeros(5)}, "{}", r"ids cannot be torch.float32 \[5\]"),
        ({"ids": torch.zeros(5, 1, dtype=torch.int32)}, "{}", r"ids cannot be torch.int32 \[5, 1\]"),
        ({"learn": torch.ones(5, dtype=torch.int32)}, "{}", r"learn cannot be torch.int32 \[5\]"),
        ({"lengths": torch.ones(5, dtype=torch.bool)}, "{}", r"lengths cannot be torch.bool \[5\]"),
        ({"temperatures": torch.zeros(2, dtype=torch.int32)}, "{}", "temperatures cannot be torch.int32"),
        ({}, "[1]", r"its notes are no JSON object: \[1\]"),
        ({}, "nonsense", "Expecting value"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(tmp_path, changed, notes: str, message: str) -> None:
    path = tmp_path / "tokens.safetensors"
    parts = {"ids": torch.arange(5), "learn": torch.ones(5, dtype=torch.bool), "temperatures": torch.zeros(2)}
    save_file(parts | {"lengths": torch.tensor([2, 3])} | changed, path, metadata={"notes": notes})
    with pytest.raises(TokensError, match=f"tokens.safetensors is not a file of training tokens .*{message}") as caught:
        load_shard(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("odd", [-3, VOCAB])
def test_ids_that_the_target_does_not_know_are_named(odd: int) -> None:
    with pytest.raises(TokensError, match=f"here: token id {odd} is not in the vocabulary of tiny, which has {VOCAB}"):
        check_ids([chat(1, 2, 3), chat(odd, 2, 3)], chatty(), "here")
    check_ids([chat(0, VOCAB - 1)], chatty(), "here")


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens.safetensors"
    save_shard(path, [chat(1, 2, 3)], {})

    def full(tensors, into, metadata) -> None:
        into.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(tokens, "save_file", full)
    with pytest.raises(TokensError, match="cannot write .*tokens.safetensors': No space left on device"):
        save_shard(path, [chat(4, 5, 6)], {})
    assert load_shard(path)[0] == [chat(1, 2, 3)]
    assert list(tmp_path.iterdir()) == [path]


def test_the_corpus_drops_doubles_and_chats_without_answers() -> None:
    silent = Conversation([1, 2], [False, False])
    corpus = Corpus.of([chat(1, 2, 3), silent, chat(1, 2, 3), chat(4, 5, 6)])
    assert corpus.held_out == [chat(1, 2, 3)]
    assert corpus.train == [chat(4, 5, 6)]
    assert corpus.num_tokens == 3


def test_a_first_token_cannot_be_learnt() -> None:
    with pytest.raises(TokensError, match="nothing to learn from"):
        Corpus.of([Conversation([1, 2], [True, False])])


def test_the_split_stays_when_the_corpus_grows() -> None:
    chats = [chat(i, i + 1, i + 2) for i in range(120)]
    small, large = Corpus.of(chats[:70]), Corpus.of(chats)
    assert small.held_out == chats[:70:50] == large.held_out[:2]
    assert large.train[: len(small.train)] == small.train
    assert small.digest != large.digest == Corpus.of(chats).digest


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(TokensError, match="no conversation has answer tokens"):
        Corpus.of([Conversation([1, 2], [False, False])])


def test_one_conversation_is_not_enough() -> None:
    with pytest.raises(TokensError, match="only one conversation, .* more text is needed"):
        Corpus.of([Conversation([1, 2], [False, True])])


def test_the_draft_vocabulary_holds_the_most_frequent_answer_ids() -> None:
    chats = [chat(9, 9, 9, 3, 4), chat(9, 9, 3, 5), chat(9, 3, 4)]
    assert draft_vocabulary(chats, 2, 10).tolist() == [3, 4]
    assert draft_vocabulary(chats, 3, 10).tolist() == [3, 4, 5]
    assert draft_vocabulary(chats, 5, 10).tolist() == [0, 1, 3, 4, 5]
    with pytest.raises(ValueError, match="between 1 and 10"):
        draft_vocabulary(chats, 11, 10)


def test_ids_and_flags_must_match() -> None:
    with pytest.raises(ValueError, match="one flag an id"):
        Conversation([1, 2], [True])
