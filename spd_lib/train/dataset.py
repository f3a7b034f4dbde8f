"""Chats that others wrote: a Hugging Face dataset, or a file with one chat a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from .tokens import Conversation, TokensError

COLUMNS = ("messages", "conversations")
ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant"}  # other names in use


class NoAnswerError(TokensError):
    """A chat has nothing to learn from."""


def read_chats(name: str, split: str = "train") -> Iterator[Mapping[str, Any]]:
    """Records of a JSONL file or of a dataset on the hub. Raises :class:`TokensError` for what cannot be read."""
    path = Path(name).expanduser()
    if path.suffix == ".jsonl" or path.is_file():
        yield from _lines(path)
        return
    try:
        from datasets import load_dataset  # large, and only needed here
    except ImportError:
        raise TokensError(f"to read the dataset {name!r} from the hub: pip install datasets") from None
    try:
        yield from load_dataset(name, split=split, streaming=True)
    except (OSError, ValueError) as error:
        raise TokensError(f"cannot read the dataset {name!r}, split {split!r}: {error}") from error


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TokensError(f"cannot read {path}: {error}") from error
    # Not splitlines(): JSON texts may hold other line breaks, such as U+2028, as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError:
                raise TokensError(f"{path}, line {number}: not JSON") from None


def messages_of(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """The turns of a record as ``role`` and ``content``; none at all if one of them is no text (a picture, a call).

    Raises :class:`TokensError` naming the columns it has.
    """
    for column in COLUMNS:
        turns = record.get(column) if isinstance(record, Mapping) else None
        if isinstance(turns, list) and turns and all(isinstance(turn, Mapping) for turn in turns):
            roles = [str(turn.get("role", turn.get("from"))) for turn in turns]
            texts = [turn.get("content", turn.get("value")) for turn in turns]
            if not all(isinstance(text, str) for text in texts):
                return []
            return [{"role": ROLES.get(role, role), "content": text} for role, text in zip(roles, texts, strict=True)]
    found = ", ".join(record) if isinstance(record, Mapping) else type(record).__name__
    raise TokensError(f"a chat needs a column {' or '.join(COLUMNS)} with role and content, found {found}")


def conversation(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], max_tokens: int) -> Conversation:
    """A chat under the tokenizer's template, its answers marked as what is to be learnt, cut to ``max_tokens``.

    The answer is what the template adds to the prompt, so no generation markers are needed in the template. Raises
    :class:`TokensError` if there is no answer within ``max_tokens``, or if the template rewrites the past, where this
    cannot be told.
    """
    ids: list[int] = []
    learn: list[bool] = []
    for end, message in enumerate(messages, start=1):
        if message["role"] != "assistant" or end == 1:  # nobody has asked for a first one
            continue
        before = _rendered(tokenizer, messages[: end - 1], prompt=True)
        after = _rendered(tokenizer, messages[:end], prompt=False)
        if after[: len(before)] != before or before[: len(ids)] != ids:
            raise TokensError(
                "the chat template changes earlier turns when a new one comes, so that answers cannot be told apart: "
                "train on chats of one turn, or on the target's own text"
            )
        learn += [False] * (len(before) - len(ids)) + [True] * (len(after) - len(before))
        ids = after
    if not any(learn[:max_tokens]):
        raise NoAnswerError(f"a chat has no assistant tokens among its first {max_tokens}")
    return Conversation(ids[:max_tokens], learn[:max_tokens])


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, prompt: bool) -> list[int]:
    try:
        encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=True)
    except TemplateError as error:
        raise TokensError(f"the chat template refuses a chat of the dataset: {error}") from error
    return list(encoded["input_ids"])


def dataset_corpus(
    tokenizer: PreTrainedTokenizerBase, name: str, num_tokens: int, max_tokens: int, split: str = "train"
) -> Iterator[Conversation]:
    """Chats of a dataset until they have ``num_tokens`` tokens; those without an answer are left out.

    Raises :class:`TokensError` for what cannot be used.
    """
    if not tokenizer.chat_template:
        raise TokensError(f"the target has no chat template, so that it cannot read the chats of {name!r}")
    size = 0
    for record in read_chats(name, split):
        try:
            chat = conversation(tokenizer, messages_of(record), max_tokens)
        except NoAnswerError:
            continue
        size += len(chat.ids)
        yield chat
        if size >= num_tokens:
            return
