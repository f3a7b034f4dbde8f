"""The variants that tools/draft_trials.py compares are what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from spd_lib.draft.config import DraftConfig
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.train.tokens import Conversation
from tests.draft.modules import deep_llama

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import draft_trials  # noqa: E402

KINDS = [(0,), (0, 1, 1), (0, 1, 2, 2, 2)]


def config(num_layers: int) -> DraftConfig:
    return DraftConfig("tiny", "", 8, 50, 32, 64, 4, 2, 8, num_layers, (0, 2, 4, 8), 40, 12, 10_000.0, 1e-6)


@pytest.fixture
def states() -> torch.Tensor:
    return torch.randn(4, 2, 20, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kinds", KINDS)
def test_with_one_layer_contextual_rows_are_memory_rows(states, kinds) -> None:
    contextual, plain = draft_trials.ContextualRows(config(1)), PipelineDraftModule(config(1))
    plain.load_state_dict(contextual.state_dict())
    torch.testing.assert_close(contextual(states, kinds), plain(states, kinds))


@pytest.mark.parametrize("kinds", KINDS)
@torch.no_grad()
def test_contextual_rows_are_an_ordinary_transformer_at_every_position(states, kinds) -> None:
    module = draft_trials.ContextualRows(config(2))
    drafted = module(states, kinds).view(2, 20, -1)
    for position in (0, 3, 10, 19):
        expected = ordinary(module, states[:, :1], kinds, position)
        torch.testing.assert_close(drafted[0, position], expected, rtol=1e-5, atol=1e-5)


def ordinary(module, states, kinds, newest):
    """Logits after ``newest`` from one causal pass over the rows as they stand then."""
    complete, count = module.config.complete, newest + 1
    rows = module._rows_of(states, range(complete + 1))
    kind_of = [kinds[newest - place] if newest - place < len(kinds) else complete for place in range(count)]
    hidden = torch.stack([rows[kind][0, place] for place, kind in enumerate(kind_of)])
    rotary = module.rotary(torch.arange(count))
    distance = torch.arange(count)[:, None] - torch.arange(count)[None]
    seen = (distance >= 0) & (distance < module.config.window)
    for layer in module.stack:
        keys, values = layer.remember(hidden, rotary)
        scores = torch.einsum("kgsd,ktd->kgst", layer.ask(hidden, rotary), keys)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        hidden = layer.answer(hidden, torch.einsum("kgst,ktd->skgd", weights, values).flatten(1))
    return module.head(module.norm(hidden))[-1]


def test_separate_projections_begin_where_summed_ones_do() -> None:
    decoder = draft_trials.Decoder(deep_llama())
    shape = DraftConfig.like(decoder, target="tiny", tokenizer="", draft_vocab_size=20, window=12)
    ids = torch.arange(20)
    separate, summed = (
        draft_trials.start(draft_trials.Trial(module=kind), decoder, shape, ids)
        for kind in (draft_trials.SeparateProjections, PipelineDraftModule)
    )
    found = torch.randn(len(shape.anchors), 2, 9, shape.hidden_size)
    torch.testing.assert_close(separate(found, (0, 1)), summed(found, (0, 1)))


def test_up_to_stops_at_the_budget() -> None:
    chats = [Conversation([1] * 10, [True] * 10) for _ in range(5)]
    assert len(draft_trials.up_to(25, chats)) == 3
    assert draft_trials.up_to(10**6, chats) == chats
