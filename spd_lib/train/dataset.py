"""Chats that others wrote: a Hugging Face dataset, or a file with one chat a line."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ..evaluate.questions import HALF_A_CHARACTER, is_text
from .tokens import Conversation, TokensError, first_line

COLUMNS = ("messages", "conversations")
ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant"}  # other names in use


FILES = {".jsonl", ".json", ".csv", ".txt", ".parquet"}  # names of files, not of datasets on the hub


class NoAnswerError(TokensError):
    """A chat has nothing to learn from."""


def read_chats(name: str, split: str | None = None) -> Iterator[tuple[str, Any]]:
    """Records of a JSONL file or of a dataset on the hub, each with the place where it stands.

    Raises :class:`TokensError` for what cannot be read.
    """
    path = Path(name).expanduser()
    if not name:
        raise TokensError("the dataset has no name: give a .jsonl file or a dataset on the hub")
    if path.suffix == ".jsonl" or (path.exists() and not path.is_dir()):
        if split is not None:
            raise TokensError(f"a file has no splits: leave out the split {split!r} for {path}")
        yield from _lines(path)
        return
    if not path.exists() and (path.suffix in FILES or name.startswith(("/", ".", "~"))):
        raise TokensError(f"there is no file {str(path)!r} of chats")
    try:
        from datasets import load_dataset  # large, and only needed here
    except ImportError:
        raise TokensError(f"to read the dataset {name!r} from the hub: pip install datasets") from None
    split = split or "train"
    try:
        for number, record in enumerate(load_dataset(name, split=split, streaming=True), start=1):
            yield f"{name}, record {number} of {split}", record
    except (OSError, ValueError) as error:
        raise TokensError(f"cannot read the dataset {name!r}, split {split!r}: {first_line(error)}") from error


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TokensError(f"cannot read {path}: {error}") from error
    # Not splitlines(): JSON texts may hold other line breaks, such as U+2028, as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError):
                raise TokensError(f"{place}: not JSON") from None


def messages_of(record: Any) -> list[dict[str, str]]:
    """The turns of a record as ``role`` and ``content``; none at all if one of them is no text (a picture, a call).

    Raises :class:`TokensError` saying what a chat needs and what is there instead.
    """
    columns = [column for column in COLUMNS if column in record] if isinstance(record, Mapping) else []
    if not columns:
        found = ", ".join(map(str, record)) if isinstance(record, Mapping) else type(record).__name__
        raise TokensError(f"a chat needs a column {' or '.join(COLUMNS)}, found {found or 'none'}")
    turns = record[columns[0]]
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        kinds = sorted({type(turn).__name__ for turn in turns}) if isinstance(turns, list) else [type(turns).__name__]
        raise TokensError(f"{columns[0]} must be a list of turns with role and content, found {', '.join(kinds)}")
    return _turns(turns)


def _turns(turns: list[Mapping[str, Any]]) -> list[dict[str, str]]:
    messages = []
    for turn in turns:
        try:
            role = turn["role"] if "role" in turn else turn["from"]
            text = turn["content"] if "content" in turn else turn["value"]
        except KeyError:
            raise TokensError(f"a turn needs role and content, found {', '.join(map(str, turn)) or 'none'}") from None
        if not isinstance(role, str):
            raise TokensError(f"a role must be a text such as user or assistant, got {role!r}")
        if not isinstance(text, str):
            return []
        if not is_text(text + role):
            raise TokensError(HALF_A_CHARACTER)
        messages.append({"role": ROLES.get(role, role), "content": text})
    return messages


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
    if not any(learn):
        raise NoAnswerError("no assistant's turn follows a user's")
    if not any(learn[:max_tokens]):
        raise NoAnswerError(f"no answer begins within max_tokens={max_tokens}")
    return Conversation(ids[:max_tokens], learn[:max_tokens])


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, prompt: bool) -> list[int]:
    try:
        encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=True)
    except TemplateError as error:
        raise TokensError(f"the chat template refuses this chat: {error}") from error
    return list(encoded["input_ids"])


def dataset_corpus(
    tokenizer: PreTrainedTokenizerBase, name: str, num_tokens: int, max_tokens: int, split: str | None = None
) -> Iterator[Conversation]:
    """Chats of a dataset until they have ``num_tokens`` tokens; those without an answer are left out.

    Raises :class:`TokensError` for what cannot be used.
    """
    if not tokenizer.chat_template:
        raise TokensError(f"the target has no chat template, so that it cannot read the chats of {name!r}")
    size, left_out = 0, Counter[str]()

    def why() -> str:
        return "; ".join(f"in {count:,}, {reason}" for reason, count in left_out.most_common())

    for place, record in read_chats(name, split):
        try:
            chat = conversation(tokenizer, messages_of(record), max_tokens)
        except NoAnswerError as error:
            left_out[str(error)] += 1
            continue
        except TokensError as error:
            raise TokensError(f"{place}: {error}") from error
        size += len(chat.ids)
        yield chat
        if size >= num_tokens:
            break
    if not size:
        raise TokensError(f"{name} has no chats to learn from" + (f": {why()}" if left_out else ""))
    if left_out:
        print(f"some chats of {name} are left out: {why()}", file=sys.stderr)
