"""The training forward and the drafter at work are one function of the same anchors."""

from __future__ import annotations

import copy

import pytest
import torch

import spd_lib
from spd_lib.core.staircase import row_kinds
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Oracle
from spd_lib.draft.config import DraftConfig
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.target.layers import Decoder
from spd_lib.target.pipeline import Pipeline
from tests.draft.modules import Teacher, Watched, deep_llama, states_of, tiny_module
from tests.families import FAMILIES, VOCAB, fresh, prompt_of, tiny

TOLERANCE = 1e-5  # max |a − b| ÷ max |b| over the logits


def watch(model, module, num_stages: int, plan, error_rate=0.15, count=40) -> tuple[Pipeline, Watched]:
    """What the drafter at work said during a run with accepted drafts and flushes."""
    pipeline = Pipeline(model, num_stages, plan)
    watched = Watched(module, Oracle(error_rate, seed=3))
    prompt = prompt_of(5)
    decode(pipeline, watched, Sampler.greedy(VOCAB, torch.device("cpu")), StopRule(5, count), prompt)
    return pipeline, watched


def distance(pipeline: Pipeline, watched: Watched, module: PipelineDraftModule) -> tuple[float, set[int]]:
    """Largest relative difference to the training forward over all drafts, and the fills that occurred."""
    worst, fills = 0.0, set()
    teacher = Teacher(pipeline.decoder, watched.seen[0].ids[:-1], module.config.anchors)
    for seen in watched.seen:
        states = teacher.states(seen.ids)
        kinds = row_kinds(pipeline.plan, module.config.anchors, seen.fill)
        with torch.no_grad():
            trained = module(states, kinds)[-1]
        worst = max(worst, float((seen.logits - trained).abs().max() / trained.abs().max()))
        fills.add(seen.fill)
    return worst, fills


@pytest.mark.parametrize("plan", ["even", "balanced"])
@pytest.mark.parametrize("num_stages", [2, 3, 4, 5, 8, 16])
def test_training_equals_inference(num_stages: int, plan: str) -> None:
    model = deep_llama()
    module = tiny_module(Decoder(model), anchors=(0, 2, 5, 7, 11, 16))
    pipeline, watched = watch(model, module, num_stages, plan, error_rate=0.04 if num_stages > 8 else 0.15, count=64)
    worst, fills = distance(pipeline, watched, module)
    assert fills == set(range(1, num_stages + 1))
    assert worst <= TOLERANCE


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_training_equals_inference_in_other_families(family: str) -> None:
    model = tiny(family)
    module = tiny_module(Decoder(model))
    assert distance(*watch(model, module, 3, (1, 3, len(model.model.layers) - 4)), module)[0] <= TOLERANCE


@pytest.mark.parametrize("window", [1, 2, 7])
def test_the_window_is_the_same_in_training_and_at_work(window: int) -> None:
    """In a text many windows long, with flushes: the buffers move several times, and they never grow."""
    model = deep_llama()
    module = tiny_module(Decoder(model), window=window)
    pipeline, watched = watch(model, module, 4, "even", count=80)
    assert distance(pipeline, watched, module)[0] <= TOLERANCE
    rows = 2 * (window + 4)
    assert watched.inner.memory_bytes == module.config.num_layers * 2 * rows * 2 * 8 * 4  # kv heads, head_dim, float32


def test_a_missing_refresh_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = deep_llama()
    module = tiny_module(Decoder(model), anchors=(0, 2, 5, 7, 11, 16))
    refresh = PipelineDrafter._refresh
    monkeypatch.setattr(PipelineDrafter, "_refresh", lambda self, row: refresh(self, row) and row.kind != 3)
    assert distance(*watch(model, module, 5, "even"), module)[0] > 100 * TOLERANCE


def test_only_selected_positions_ask() -> None:
    model = deep_llama()
    module = tiny_module(Decoder(model))
    states = states_of(Decoder(model), prompt_of(20), module.config.anchors)
    select = torch.arange(20)[None] % 3 == 0
    with torch.no_grad():
        torch.testing.assert_close(module(states, (0, 1, 3), select=select), module(states, (0, 1, 3))[select[0]])


def test_a_position_sees_no_future() -> None:
    model = deep_llama()
    module = tiny_module(Decoder(model))
    states = states_of(Decoder(model), prompt_of(12), module.config.anchors).requires_grad_()
    module(states, (0, 1, 3))[7].sum().backward()
    touched = states.grad.abs().sum(dim=(1, 3)) > 0  # [anchors, S]
    assert not touched[:, 8:].any()
    assert touched[:, 7].tolist() == [True] + [False] * 8  # of itself it knows the embedding
    assert touched[:, 6].tolist() == [True, True] + [False] * 7
    assert touched[:, 5].tolist() == [True] * 4 + [False] * 5
    assert touched[:, :5].all()


def test_saving_and_loading_keeps_everything(tmp_path) -> None:
    module = tiny_module(Decoder(deep_llama()))
    module.save_pretrained(tmp_path)
    assert {"config.json", "model.safetensors"} <= {path.name for path in tmp_path.iterdir()}
    again = PipelineDraftModule.from_pretrained(tmp_path)
    assert again.config == module.config
    for (name, ours), theirs in zip(module.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_foreign_target_is_refused() -> None:
    module = tiny_module(Decoder(deep_llama()))
    with pytest.raises(ValueError, match="trained for tiny"):
        watch(tiny("qwen3"), module, 2, "even")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_module_begins_with_the_scales_of_the_target(family: str) -> None:
    """In every family, whatever its norms are called and however they keep their weights."""
    model = fresh(family)
    decoder = Decoder(model)
    with torch.no_grad():
        for parameter in decoder.base.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.rand_like(parameter))
    config = DraftConfig.like(decoder, target=family, tokenizer="", draft_vocab_size=20, window=8)
    module = PipelineDraftModule.for_decoder(decoder, config, torch.arange(20))
    hidden = torch.randn(3, config.hidden_size)
    torch.testing.assert_close(module.norm(hidden), decoder.base.norm(hidden), rtol=1e-4, atol=1e-4)
    last, layer = decoder.base.layers[-1], module.stack[-1]
    if hasattr(last, "input_layernorm"):
        before = getattr(last, "pre_feedforward_layernorm", None) or last.post_attention_layernorm
        torch.testing.assert_close(layer.row_norm(hidden), last.input_layernorm(hidden), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(layer.mlp_norm(hidden), before(hidden), rtol=1e-4, atol=1e-4)


def test_the_callers_module_keeps_its_dtype() -> None:
    model = copy.deepcopy(deep_llama()).to(torch.bfloat16)
    module = tiny_module(Decoder(model))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    spd_lib.generate(model, torch.tensor([prompt_of(5)]), drafter=module, num_stages=2, max_new_tokens=4)
    for name, tensor in module.state_dict().items():
        assert tensor.dtype == before[name].dtype and torch.equal(tensor, before[name]), name
