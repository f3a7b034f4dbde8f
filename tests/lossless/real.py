"""The real model's prompts, its own texts, and its drafters, for CI and for the full grid."""

from __future__ import annotations

from collections.abc import Callable

import torch

import spd_lib
from spd_lib.core.trace import Trace
from spd_lib.draft import Drafter, Oracle, PromptLookup, Random, shipped
from spd_lib.target.load import Target, encode_chat

PROMPTS = (
    "Why is the sky blue?",
    "Write a short poem about the sea.",
    "List ten animals that live in the forest.",
    "What is 17 plus 25? Explain each step.",
    "Write a Python function that reverses a list.",
    "Translate into French: I would like a cup of coffee, please.",
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog.",
    "Tell me how a steam engine works, in simple words.",
)

# The text is handed to the oracle to save the time of finding it; "oracle" alone finds it by itself.
UNTRAINED: dict[str, Callable[[list[int]], Drafter]] = {
    "oracle 0": lambda text: Oracle(0.0, text=text),
    "oracle .3": lambda text: Oracle(0.3, text=text),
    "oracle 1": lambda text: Oracle(1.0, text=text),
    "random": lambda text: Random(),
    "prompt lookup": lambda text: PromptLookup(),
}
DRAFTERS = UNTRAINED | {"shipped": lambda text: shipped()}


def prompt_ids(target: Target, index: int) -> list[int]:
    """Prompt number ``index`` in the model's chat template."""
    return encode_chat(target, PROMPTS[index])[0].tolist()


def spd(model: torch.nn.Module, prompt: list[int], drafter: Drafter, num_stages: int, count: int) -> Trace:
    """``count`` tokens through the front door, whatever they are (no end of sequence)."""
    output = spd_lib.generate(
        model,
        torch.tensor([prompt]),
        drafter=drafter,
        num_stages=num_stages,
        max_new_tokens=count,
        eos_token_id=[],
        return_dict_in_generate=True,
    )
    assert output.sequences[0, len(prompt) :].tolist() == output.traces[0].token_ids
    return output.traces[0]
