"""Tiny random models of the supported families, and the text that each of them writes by itself.

The models know nothing, but their weights are large enough for greedy texts to wander, so that a wrong key, position or
mask changes the text. Windows are shorter than the texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import torch
import transformers
from torch import Tensor, nn

VOCAB = 97
WINDOW = 6
MAX_POSITIONS = 128
SLIDING = "sliding_attention"
FULL = "full_attention"

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def _llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, num_hidden_layers=5))


def _qwen2() -> nn.Module:
    kinds = [FULL, SLIDING, SLIDING, FULL, SLIDING]
    sliding = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1, "layer_types": kinds}
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SHAPE, num_hidden_layers=5, **sliding))


def _qwen3() -> nn.Module:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE, num_hidden_layers=4))


def _mistral() -> nn.Module:
    config = transformers.MistralConfig(**SHAPE, num_hidden_layers=4, sliding_window=WINDOW)
    return transformers.MistralForCausalLM(config)


def _gemma3() -> nn.Module:
    kinds = [SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING]
    sliding = {"sliding_window": WINDOW, "layer_types": kinds, "query_pre_attn_scalar": 8}
    config = transformers.Gemma3TextConfig(**SHAPE, num_hidden_layers=6, **sliding)
    return transformers.Gemma3ForCausalLM(config)


def _olmo2() -> nn.Module:
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**SHAPE, num_hidden_layers=5))


_MAKERS: dict[str, Callable[[], nn.Module]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mistral": _mistral,
    "gemma3": _gemma3,
    "olmo2": _olmo2,
}
FAMILIES = tuple(_MAKERS)
SEEDS = {"llama": 4, "qwen2": 1, "qwen3": 4, "mistral": 2, "gemma3": 4, "olmo2": 3}  # whose texts wander most
WINDOWED = ("qwen2", "mistral", "gemma3")


def fresh(family: str) -> nn.Module:
    """A new model object of ``family``, with the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEEDS[family])
        return _MAKERS[family]().float().eval().requires_grad_(False)


@cache
def tiny(family: str) -> nn.Module:
    """The model of ``family`` that all tests of this process share."""
    return fresh(family)


def num_layers(family: str) -> int:
    """L."""
    return len(tiny(family).model.layers)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """A random prompt of ``length`` ids."""
    source = random.Random(f"{length}:{seed}")
    return [source.randrange(VOCAB) for _ in range(length)]


@torch.no_grad()
def reference(model: nn.Module, prompt: list[int], count: int) -> list[int]:
    """``count`` tokens of plain greedy decoding with transformers' own forward and cache, and nothing of ours."""
    output = model(input_ids=torch.tensor([prompt], device=model.device), use_cache=True)
    keyword = "cache" if hasattr(output, "cache") else "past_key_values"  # renamed in newer transformers
    text = [int(output.logits[0, -1].argmax())]
    while len(text) < count:
        step = torch.tensor([text[-1:]], device=model.device)
        output = model(input_ids=step, use_cache=True, **{keyword: getattr(output, keyword)})
        text.append(int(output.logits[0, -1].argmax()))
    return text


@cache
def reference_of(family: str, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """:func:`reference` of the shared model, remembered."""
    return tuple(reference(tiny(family), list(prompt), count))


@torch.no_grad()
def own_logits(model: nn.Module, ids: list[int]) -> Tensor:
    """float32 logits [vocab_size] after ``ids``: one forward of the model itself, without a cache."""
    tensor = torch.tensor([ids], device=model.device)
    return model(input_ids=tensor, use_cache=False).logits[0, -1].float()
