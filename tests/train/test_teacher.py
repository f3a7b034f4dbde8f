"""What the drafter learns from, computed on the spot or read from disk."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from spd_lib.target.layers import Decoder
from spd_lib.target.pipeline import Pipeline
from spd_lib.train import teacher
from spd_lib.train.teacher import Stored, Streamed, padded
from spd_lib.train.tokens import Conversation, TokensError
from tests.families import FAMILIES, fresh, prompt_of, tiny
from tests.train.chat import conversations

ANCHORS = (0, 2, 3, 5)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("family", FAMILIES)
def test_reading_a_text_equals_the_pipes_prefill(family: str) -> None:
    """Also beyond a sliding window, also with padding behind it."""
    decoder, ids = Decoder(tiny(family)), prompt_of(20, 3)
    anchors = (0, 1, decoder.num_layers)
    pipeline = Pipeline(tiny(family), 2)
    pipeline.prefill(ids, anchors[1:])
    with torch.no_grad():
        found = decoder.read(torch.tensor([[*ids, 0, 0], [*prompt_of(22, 1)]]), anchors)
    torch.testing.assert_close(found[0, 0, :20], decoder.embed(ids)[0])
    for place, anchor in enumerate(anchors[1:], start=1):
        torch.testing.assert_close(found[place, 0, :20], pipeline.prompt_features[anchor][0], rtol=1e-4, atol=1e-4)


def test_stored_equals_streamed(tmp_path) -> None:
    chats, decoder = conversations(9), Decoder(tiny("llama"))
    streamed, stored = Streamed(decoder, ANCHORS), Stored(decoder, ANCHORS, chats, tmp_path)
    batch = [chats[7], chats[2], chats[4]]
    a, b = streamed.states(batch), stored.states(batch).float()
    for row, chat in enumerate(batch):
        torch.testing.assert_close(a[:, row, : len(chat.ids)], b[:, row, : len(chat.ids)], rtol=1e-2, atol=1e-2)
        assert not b[1:, row, len(chat.ids) :].any()


def test_a_grown_corpus_reads_only_what_is_new(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "FILE_CHATS", 4)
    chats, decoder = conversations(9), Decoder(tiny("llama"))
    Stored(decoder, ANCHORS, chats[:8], tmp_path)
    times = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    Stored(decoder, ANCHORS, chats, tmp_path)
    assert len(times) == 2 and len(files(tmp_path)) == 3
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


def test_the_target_may_lie_elsewhere(tmp_path) -> None:
    there, here = fresh("llama"), fresh("llama")
    here.config._name_or_path = "/somewhere/else"
    for model in (there, here):
        Stored(Decoder(model), ANCHORS, conversations(1), tmp_path)
    assert len(files(tmp_path)) == 1


def test_a_full_disk_is_told_before_it_is_full(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, 10**6))
    with pytest.raises(TokensError, match="--stream"):
        Stored(Decoder(tiny("llama")), ANCHORS, conversations(3), tmp_path)
    assert not files(tmp_path)


def test_a_write_that_fails_leaves_no_half_file(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self, target) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        Stored(Decoder(tiny("llama")), ANCHORS, conversations(3), tmp_path)
    assert not files(tmp_path)


def test_other_weights_of_the_same_shape_are_read_anew(tmp_path) -> None:
    chats, other = conversations(1), fresh("llama")
    Stored(Decoder(tiny("llama")), ANCHORS, chats, tmp_path)
    other.model.layers[0].mlp.up_proj.weight.data.mul_(2)
    found = Stored(Decoder(other), ANCHORS, chats, tmp_path).states(chats).float()
    expected = Streamed(Decoder(other), ANCHORS).states(chats)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-2, atol=1e-2)


def test_padding_asks_nothing() -> None:
    chats = [Conversation([1, 2, 3, 4], [False, False, True, True]), Conversation([5, 6], [False, True])]
    ids, asks = padded(chats)
    assert ids.tolist() == [[1, 2, 3, 4], [5, 6, 0, 0]]
    assert asks.tolist() == [[False, True, True, False], [True, False, False, False]]


def test_from_a_place_on_everything_is_asked_for() -> None:
    chats = [Conversation([1, 2, 3, 4], [False, False, False, True]), Conversation([5, 6], [False, True])]
    assert padded(chats, 2)[1].tolist() == [[False, True, True, False], [True, False, False, False]], (
        "the answer anyway"
    )
    assert padded(chats, 1)[1].tolist() == [[True, True, True, False], [True, False, False, False]]
