"""What the drafter learns from: the target's hidden states at the anchors, computed on the spot or kept on disk."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..files import whole_file
from ..target.fingerprint import weights_digest
from ..target.layers import Decoder
from .draws import cut
from .pause import wait_while_paused
from .progress import progress
from .tokens import Conversation, TokensError

READ_TOKENS = 4096  # a pass of the target over so many tokens at a time
FILE_CHATS = 256
SPARE_BYTES = 2 * 2**30


def padded(chats: Sequence[Conversation], learn_from: int | None = None) -> tuple[Tensor, Tensor]:
    """Ids int64 [B, S], zeros at the end, and bool [B, S]: positions whose successor the drafter learns to predict.

    These are the answers' tokens, or with ``learn_from`` all tokens from that place on.
    """
    length = max(len(chat.ids) for chat in chats)
    ids = torch.zeros(len(chats), length, dtype=torch.int64)
    asks = torch.zeros(len(chats), length, dtype=torch.bool)
    for row, chat in enumerate(chats):
        ids[row, : len(chat.ids)] = torch.tensor(chat.ids)
        asks[row, : len(chat.ids) - 1] = torch.tensor(chat.learn)[1:]
        if learn_from is not None:
            asks[row, learn_from - 1 : len(chat.ids) - 1] = True
    return ids, asks


class Streamed:
    """Hidden states computed whenever they are asked for: right where the target is fast, on a GPU."""

    def __init__(self, decoder: Decoder, anchors: tuple[int, ...]) -> None:
        self.decoder, self.anchors = decoder, anchors

    @torch.no_grad()
    def states(self, chats: Sequence[Conversation]) -> Tensor:
        """[anchors, B, S, hidden_size]; what stands behind a text's end means nothing."""
        return self.decoder.read(padded(chats)[0], self.anchors)


class Stored:
    """Hidden states computed once and kept on disk in bfloat16, so that every further epoch only reads them.

    A folder for every target, named by its weights, and a file for every few hundred texts, named by what is in it: a
    corpus that has grown reads what is new, and a killed run loses one file. The embedding is looked up instead.
    Raises :class:`TokensError` if the disk is too small.
    """

    def __init__(self, decoder: Decoder, anchors: tuple[int, ...], chats: Sequence[Conversation], folder: Path) -> None:
        self.decoder, self.anchors = decoder, anchors
        self._folder = folder / weights_digest(decoder.model)
        self._places: dict[int, tuple[Tensor, int]] = {}  # id(text) → the memory it is in, where it begins
        self._chats = list(chats)  # keeps them alive: they are known by identity
        self._folder.mkdir(parents=True, exist_ok=True)
        parts = [self._chats[start : start + FILE_CHATS] for start in range(0, len(self._chats), FILE_CHATS)]
        self._check_room([part for part in parts if not self._is_kept(part)])
        for part in progress(iterable=parts, desc="reading", unit="file"):
            if not self._is_kept(part):
                self._write(part)
            flat = torch.from_file(str(self._path(part)), size=self._bytes(part) // 2, dtype=torch.bfloat16)
            memory = flat.view(-1, len(anchors) - 1, decoder.config.hidden_size)
            start = 0
            for chat in part:
                self._places[id(chat)] = memory, start
                start += len(chat.ids)

    @torch.no_grad()
    def states(self, chats: Sequence[Conversation]) -> Tensor:
        """[anchors, B, S, hidden_size] in bfloat16; zeros behind a text's end."""
        ids = padded(chats)[0]
        out = torch.zeros(len(self.anchors), *ids.shape, self.decoder.config.hidden_size, dtype=torch.bfloat16)
        out[0] = self.decoder.base.embed_tokens(ids.to(self.decoder.device)).to("cpu", torch.bfloat16)
        for row, chat in enumerate(chats):
            memory, start = self._places[id(chat)]
            out[1:, row, : len(chat.ids)] = memory[start : start + len(chat.ids)].transpose(0, 1)
        return out.to(self.decoder.device)

    def _path(self, part: Sequence[Conversation]) -> Path:
        config = self.decoder.config.to_dict() | {"_name_or_path": None}  # where the target was found does not matter
        name = hashlib.sha256(repr((config, self.anchors, self.decoder.dtype)).encode())
        for chat in part:
            name.update(torch.tensor(chat.ids, dtype=torch.int32).numpy().tobytes())
        return self._folder / f"states-{name.hexdigest()[:24]}.bf16"

    def _bytes(self, part: Sequence[Conversation]) -> int:
        return 2 * sum(len(chat.ids) for chat in part) * (len(self.anchors) - 1) * self.decoder.config.hidden_size

    def _is_kept(self, part: Sequence[Conversation]) -> bool:
        path = self._path(part)
        return path.exists() and path.stat().st_size == self._bytes(part)

    def _check_room(self, missing: Sequence[Sequence[Conversation]]) -> None:
        needed, free = sum(map(self._bytes, missing)), shutil.disk_usage(self._folder).free
        if needed and free < needed + SPARE_BYTES:
            raise TokensError(
                f"the target's hidden states take {needed / 1e9:.1f} GB and {self._folder} has {free / 1e9:.1f} GB "
                "free: train on fewer tokens, name another place in SPD_CACHE, or compute them anew (--stream)"
            )

    @torch.no_grad()
    def _write(self, part: Sequence[Conversation]) -> None:
        found: dict[int, Tensor] = {}
        for batch in cut(sorted(part, key=lambda chat: len(chat.ids)), READ_TOKENS):
            wait_while_paused()
            states = self.decoder.read(padded(batch)[0], self.anchors[1:]).to("cpu", torch.bfloat16)
            for row, chat in enumerate(batch):
                found[id(chat)] = states[:, row, : len(chat.ids)].transpose(0, 1)
        with whole_file(self._path(part)) as place, place.open("wb") as file:
            for chat in part:
                file.write(found[id(chat)].contiguous().view(torch.int16).numpy().tobytes())
