"""Small random drafters for the tiny families, and a drafter that watches another one at work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import transformers
from torch import Tensor

from spd_lib.draft import Oracle
from spd_lib.draft.config import DraftConfig
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.target.layers import Decoder, Features
from spd_lib.target.pipeline import Pipeline
from tests.families import SHAPE


@cache
def deep_llama() -> torch.nn.Module:
    """A tiny model of 16 layers, so that it can be cut into as many stages."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=16)
        return transformers.LlamaForCausalLM(config).float().eval().requires_grad_(False)


def tiny_module(decoder: Decoder, anchors: tuple[int, ...] | None = None, seed: int = 0, **changed):
    """A PDM of two layers with random weights for a tiny target."""
    layers = decoder.num_layers
    settings = dict(
        target="tiny",
        tokenizer="",
        target_layers=layers,
        vocab_size=decoder.vocab_size,
        hidden_size=decoder.config.hidden_size,
        intermediate_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        num_layers=2,
        anchors=anchors or tuple(range(0, layers, 2)) + (layers,),
        draft_vocab_size=40,
        window=64,
        rope_theta=10_000.0,
        norm_eps=1e-5,
    )
    torch.manual_seed(seed)
    module = PipelineDraftModule(DraftConfig(**(settings | changed)))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (parameter.ndim == 1))
        module.draft_ids.copy_(torch.randperm(decoder.vocab_size)[: module.config.draft_vocab_size])
    return module


@dataclass
class Seen:
    """What was known when a draft was made, and the draft logits."""

    ids: list[int]
    fill: int
    logits: Tensor


class Watched:
    """An oracle that errs as ordered does the drafting; a PDM is asked each time as well, and what it said is kept."""

    def __init__(self, module: PipelineDraftModule, oracle: Oracle) -> None:
        self.inner, self.oracle = PipelineDrafter(module), oracle
        self.anchors = self.inner.anchors
        self.seen: list[Seen] = []

    def begin(self, pipeline, prompt_ids):
        self.inner.begin(pipeline, prompt_ids)
        self.oracle.begin(pipeline, prompt_ids)

    def propose(self, flight):
        proposal = self.inner.propose(flight)
        self.seen.append(Seen(list(flight.ids), flight.fill, proposal.logits))
        return self.oracle.propose(flight)

    def rollback(self, to):
        self.inner.rollback(to)
        self.oracle.rollback(to)


class Teacher:
    """The target's hidden states at the anchors, for texts with the same prompt, one step a token as in a run."""

    def __init__(self, decoder: Decoder, prompt: list[int], anchors: tuple[int, ...]) -> None:
        self.pipeline, self.anchors, self.prompt = Pipeline(decoder.model, 1), anchors, prompt
        self.pipeline.prefill(prompt, anchors[1:])
        self.ids, self.parts = list(prompt), [self._stack(prompt, self.pipeline.prompt_features)]

    def _stack(self, ids: list[int], features: Features) -> Tensor:
        return torch.stack([self.pipeline.decoder.embed(ids), *(features[anchor] for anchor in self.anchors[1:])])

    @torch.no_grad()
    def states(self, ids: list[int]) -> Tensor:
        """[anchors, 1, S, hidden_size]"""
        shared = len(self.prompt)
        while shared < min(len(ids), len(self.ids)) and ids[shared] == self.ids[shared]:
            shared += 1
        self.pipeline.rollback(shared)
        del self.ids[shared:], self.parts[shared - len(self.prompt) + 1 :]
        for token_id in ids[shared:]:
            features: Features = dict.fromkeys(self.anchors[1:])
            self.pipeline._through_all_stages([token_id], features)
            self.ids.append(token_id)
            self.parts.append(self._stack([token_id], features))
        return torch.cat(self.parts, dim=2)


def states_of(decoder: Decoder, ids: list[int], anchors: tuple[int, ...]) -> Tensor:
    """The hidden states of one text at the anchors  # [anchors, 1, S, hidden_size]"""
    return Teacher(decoder, ids, anchors).states(ids)
