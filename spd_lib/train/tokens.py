"""Training text as token ids: conversations, the shards they are kept in, and what they say about the vocabulary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import whole_file

if TYPE_CHECKING:
    from ..target.load import Target

HELD_OUT_EVERY = 50  # of the conversations in order, one in so many is kept for validation


class TokensError(ValueError):
    """Training tokens cannot be used; the message is one line that says what to do."""


@dataclass(frozen=True)
class Conversation:
    """Ids of one chat and, for each, whether the drafter learns to predict it (the target's own answer).

    ``temperature``: what the answer was sampled at, 0 for greedy, NaN if nobody knows.
    """

    ids: Sequence[int]
    learn: Sequence[bool]
    temperature: float = float("nan")

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.learn) or not self.ids:
            raise ValueError(f"a conversation needs one flag an id, got {len(self.ids)} ids, {len(self.learn)} flags")


def save_shard(path: Path, conversations: Sequence[Conversation], notes: dict[str, Any]) -> None:
    """Writes a shard in one piece: a file of that name is whole or absent. ``notes`` say where it comes from."""
    flat = torch.tensor([token for chat in conversations for token in chat.ids])
    narrow = int(flat.max()) < 2**16
    tensors = {
        "ids": flat.to(torch.uint16 if narrow else torch.int32),
        "learn": torch.tensor([flag for chat in conversations for flag in chat.learn]),
        "lengths": torch.tensor([len(chat.ids) for chat in conversations], dtype=torch.int32),
        "temperatures": torch.tensor([chat.temperature for chat in conversations]),
    }
    try:
        with whole_file(path) as place:
            save_file(tensors, place, metadata={"notes": json.dumps(notes, sort_keys=True)})
    except OSError as error:
        raise TokensError(str(error)) from error
    except SafetensorError as error:
        raise TokensError(f"cannot write {str(path)!r}: {first_line(error)}") from error


def load_shard(path: Path) -> tuple[list[Conversation], dict[str, Any]]:
    """The conversations of a shard and its notes. Raises :class:`TokensError` for a file that is none."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in ("ids", "learn", "lengths", "temperatures")}
            notes = json.loads((file.metadata() or {}).get("notes", "{}"))
        _check_parts(tensors, notes)
        lengths = tensors["lengths"].tolist()
        ids = tensors["ids"].to(torch.int64).split(lengths)
        learn = tensors["learn"].split(lengths)
        chats = zip(ids, learn, tensors["temperatures"].tolist(), strict=True)
        return [Conversation(i.tolist(), flags.tolist(), heat) for i, flags, heat in chats], notes
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise TokensError(f"{path} is not a file of training tokens ({first_line(error)})") from error


def _check_parts(tensors: dict[str, Tensor], notes: Any) -> None:
    """Raises ``ValueError`` if the parts of a shard do not belong together."""
    ids, lengths = tensors["ids"], tensors["lengths"]
    if not isinstance(notes, dict):
        raise ValueError(f"its notes are no JSON object: {notes!r}")
    for name, tensor in tensors.items():
        if tensor.ndim != 1 or not _of_kind(name, tensor):
            raise ValueError(f"{name} cannot be {tensor.dtype} {list(tensor.shape)}")
    if (lengths < 1).any() or int(lengths.sum()) != len(ids):
        raise ValueError(f"its lengths must be above 0 and add up to its {len(ids)} ids, not {int(lengths.sum())}")
    if len(tensors["learn"]) != len(ids) or len(tensors["temperatures"]) != len(lengths):
        raise ValueError("it needs one flag an id and one temperature a conversation")


def _of_kind(name: str, tensor: Tensor) -> bool:
    if name == "learn":
        return tensor.dtype == torch.bool
    return tensor.is_floating_point() == (name == "temperatures") and tensor.dtype != torch.bool


def check_ids(chats: Iterable[Conversation], target: Target, where: str) -> None:
    """Raises :class:`TokensError` for an id that the target does not know, naming the place that it comes from."""
    size = target.model.config.get_text_config().vocab_size
    for chat in chats:
        lowest, highest = min(chat.ids), max(chat.ids)
        if not 0 <= lowest <= highest < size:
            odd = lowest if lowest < 0 else highest
            raise TokensError(
                f"{where}: token id {odd} is not in the vocabulary of {target.name}, which has {size} ids"
            )


def first_line(error: Exception) -> str:
    """What went wrong, without the page that some libraries say it on."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@dataclass(frozen=True)
class Corpus:
    """All conversations of a training run, split in two, with the hash that names them."""

    train: list[Conversation]
    held_out: list[Conversation]
    digest: str

    @classmethod
    def of(cls, conversations: Iterable[Conversation]) -> Corpus:
        """Drops conversations that occur twice and keeps one in fifty aside.

        Raises :class:`TokensError` if nothing is left to learn from.
        """
        seen: set[bytes] = set()
        train: list[Conversation] = []
        held_out: list[Conversation] = []
        digest = hashlib.sha256()
        for chat in conversations:
            name = hashlib.sha256(json.dumps(list(chat.ids)).encode()).digest()
            if name in seen or not any(chat.learn[1:]):  # nothing stands before the first token that could ask for it
                continue
            kept = held_out if len(seen) % HELD_OUT_EVERY == 0 else train
            seen.add(name)
            digest.update(name)
            kept.append(chat)
        if held_out and not train:
            raise TokensError("there is only one conversation, and one is kept to compare with: more text is needed")
        if not train:
            raise TokensError(
                "there is nothing to learn from: no conversation has answer tokens (is the chat template the target's?)"
            )
        return cls(train, held_out, digest.hexdigest())

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Corpus:
        """The corpus in the given shards, in the order of their names."""
        return cls.of(chat for path in sorted(paths) for chat in load_shard(path)[0])

    @property
    def num_tokens(self) -> int:
        """Tokens to train on, prompts included."""
        return sum(len(chat.ids) for chat in self.train)


def draft_vocabulary(conversations: Iterable[Conversation], size: int, vocab_size: int) -> Tensor:
    """The ``size`` most frequent answer tokens, as sorted ids  # int64 [size]

    Ids that never occur fill the rest, lowest first, so that the size is what was asked for.
    """
    if not 1 <= size <= vocab_size:
        raise ValueError(f"the draft vocabulary must have between 1 and {vocab_size} ids, got {size}")
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for chat in conversations:
        answer = torch.tensor(chat.ids)[torch.tensor(chat.learn)]
        counts += torch.bincount(answer, minlength=vocab_size)
    return counts.argsort(descending=True, stable=True)[:size].sort().values
