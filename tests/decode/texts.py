"""A tokenizer of pairs of letters for the tiny models, and greedy decoding in one call."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TextIteratorStreamer

import spd_lib
from spd_lib.decode import GenerateOutput

from ..families import VOCAB, prompt_of, reference_of, tiny

FAMILY = "qwen3"
TOKENS = 10
MODEL = tiny(FAMILY)


def _without_repeats() -> tuple[list[int], list[int]]:
    """A prompt after which the model repeats no token, and what it writes there alone."""
    for seed in range(500):
        text = list(reference_of(FAMILY, tuple(prompt_of(5, seed)), TOKENS))
        if len(set(text)) == TOKENS:
            return prompt_of(5, seed), text
    raise LookupError("the tiny model repeats itself after every prompt")


PROMPT, TEXT = _without_repeats()


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Ids 0, 1, 2 … are "aa", "ab", "ac" …, so that a string may lie across two tokens."""
    pairs = ["".join(pair) for pair in product("abcdefghij", repeat=2)][:VOCAB]
    raw = Tokenizer(models.WordLevel({pair: token_id for token_id, pair in enumerate(pairs)}, unk_token="aa"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(".."), "isolated")
    raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=raw, clean_up_tokenization_spaces=False)


def output_of(*rows: list[int], **options: Any) -> GenerateOutput:
    """``spd_lib.generate`` over rows of equal length, with the Traces."""
    defaults = {"max_new_tokens": TOKENS, "num_stages": 3, "drafter": "oracle", "return_dict_in_generate": True}
    return spd_lib.generate(MODEL, torch.tensor(rows), **defaults | options)


def written(prompt: list[int] = PROMPT, **options: Any) -> list[int]:
    """The new tokens of one row."""
    return output_of(prompt, **options).sequences[0, len(prompt) :].tolist()


def pieces_of(token_ids: list[int]) -> list[str]:
    """What the reader of a stream gets when the tokens are put into it one by one."""
    streamer = TextIteratorStreamer(tokenizer(), skip_prompt=True)
    for ids in ([PROMPT], *([token_id] for token_id in token_ids)):
        streamer.put(torch.tensor(ids))
    streamer.end()
    return list(streamer)
