"""A tiny target that can chat: a random model, a tokenizer of pairs of letters, and a template with marks."""

from __future__ import annotations

from functools import cache
from itertools import product

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from spd_lib.target.load import Target
from spd_lib.train.tokens import Conversation
from tests.families import SHAPE, VOCAB, WINDOW, fresh, prompt_of, reference

USER, ASSISTANT, END = VOCAB - 3, VOCAB - 2, VOCAB - 1
MARKS = {"<|user|>": USER, "<|assistant|>": ASSISTANT, "<|end|>": END}
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Ids 0, 1, 2 … are "aa", "ab", "ac" …, the last three the marks of the template."""
    pairs = ["".join(pair) for pair in product("abcdefghij", repeat=2)][: VOCAB - 3]
    words = {pair: token_id for token_id, pair in enumerate(pairs)} | MARKS
    raw = Tokenizer(models.WordLevel(words, unk_token="aa"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(".."), "isolated")
    raw.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        clean_up_tokenization_spaces=False,
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
    )
    made.chat_template = TEMPLATE
    return made


def softcapped() -> nn.Module:
    """A model that caps its scores and its logits, and has sliding windows."""
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}
    config = transformers.Gemma2Config(**SHAPE, **caps, num_hidden_layers=4, sliding_window=WINDOW)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return transformers.Gemma2ForCausalLM(config).float().eval().requires_grad_(False)


@cache
def chatty(family: str = "llama") -> Target:
    """A target whose texts end at END."""
    model = softcapped() if family == "softcapped" else fresh(family)
    model.generation_config.eos_token_id = END
    return Target(model, tokenizer(), "tiny")


@cache
def conversations(count: int = 24, answer_tokens: int = 20) -> tuple[Conversation, ...]:
    """Chats whose answers are the tiny model's own greedy words."""
    made = []
    for seed in range(count):
        prompt = [USER, *prompt_of(3 + seed % 5, seed), END, ASSISTANT]
        answer = reference(chatty().model, prompt, answer_tokens)
        learn = [False] * len(prompt) + [True] * len(answer)
        made.append(Conversation(tuple(prompt + answer), tuple(learn), 0.0))
    return tuple(made)
