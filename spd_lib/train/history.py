"""Long chats: before a question come earlier turns that the target has written, both sides of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count

from ..target.load import Message, Target, cache_folder, encode_chat
from .tokens import Conversation, load_shard
from .writer import Frame, WriterConfig, write_shards

SHARD_TOKENS = 100_000
NO_TURN = 32  # tokens: where no more are left, a history is full
HISTORY_SEED = 1  # the texts that the shipped drafter was trained on have seed 0


def earlier_turns(target: Target, rows: int, tokens: int) -> list[list[Message]]:
    """For each of ``rows`` chats turns that fill ``tokens`` tokens in the chat template, the last answer cut to fit.

    The turns are written once and kept in the cache folder. Where no turn fits into what is left, a history stays a few
    tokens short. Raises ``ValueError`` for a negative number of tokens.
    """
    if tokens < 0:
        raise ValueError(f"history must be 0 or more tokens, got {tokens}")
    if tokens == 0:
        return [[] for _ in range(rows)]
    name = f"{target.name.replace('/', '--')}-{str(target.dtype).removeprefix('torch.')}"
    folder, config = cache_folder() / "texts/history" / name, WriterConfig(seed=HISTORY_SEED)
    for shards in count(-(-rows * tokens // SHARD_TOKENS)):
        paths = write_shards(target, folder, shards * SHARD_TOKENS, config, SHARD_TOKENS)
        written = list(chain.from_iterable(load_shard(path)[0] for path in paths))
        histories = [_filled(target, written[row::rows], tokens) for row in range(rows)]
        if all(tokens - _length(target, history) < NO_TURN for history in histories):
            return histories
    raise AssertionError("shards are counted without end")


def _filled(target: Target, written: Iterable[Conversation], tokens: int) -> list[Message]:
    history: list[Message] = []
    for message, answer in _turns(target, written):
        said = {"role": "user", "content": target.tokenizer.decode(message)}
        room = tokens - _length(target, [*history, said, {"role": "assistant", "content": ""}])
        if room <= 0:  # a shorter message may fit
            continue
        history += [said, {"role": "assistant", "content": target.tokenizer.decode(answer[:room])}]
        if room <= len(answer):
            break
    return history


def _turns(target: Target, written: Iterable[Conversation]) -> Iterator[tuple[list[int], list[int]]]:
    """Ids of messages and answers without what the template puts around them, and without those that imitate it."""
    frame, special = Frame.of(target), set(target.tokenizer.all_special_ids)
    for chat in written:
        start = list(chat.learn).index(True)
        message = list(chat.ids[len(frame.before) : start - len(frame.between)])
        answer = [token for token in chat.ids[start:] if token not in frame.eos]
        if not special.intersection(message + answer):
            yield message, answer


def _length(target: Target, history: list[Message]) -> int:
    """Tokens that ``history`` adds to the prompt of a question."""
    return encode_chat(target, "?", history).shape[1] - encode_chat(target, "?").shape[1]
