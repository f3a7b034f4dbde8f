"""A model is accepted by proof; what cannot be cut exactly is refused in one line that names the model type."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import transformers
from torch import nn

import spd_lib
from spd_lib.target import Decoder, UnsupportedModelError, proof

from ..families import FAMILIES, fresh, tiny

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def qwen3_5() -> nn.Module:
    kinds = ["linear_attention", "full_attention"]
    linear = {
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    config = transformers.Qwen3_5TextConfig(
        **SMALL, **linear, intermediate_size=48, num_hidden_layers=2, layer_types=kinds
    )
    return transformers.Qwen3_5ForCausalLM(config)


def qwen3_moe() -> nn.Module:
    config = transformers.Qwen3MoeConfig(
        **SMALL, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, num_hidden_layers=2
    )
    return transformers.Qwen3MoeForCausalLM(config)


def mixtral() -> nn.Module:
    config = transformers.MixtralConfig(**SMALL, intermediate_size=48, num_local_experts=4, num_hidden_layers=2)
    return transformers.MixtralForCausalLM(config)


def t5() -> nn.Module:
    config = transformers.T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    return transformers.T5ForConditionalGeneration(config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=8
    )
    return transformers.ViTForImageClassification(config)


def gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4))


def headless() -> nn.Module:
    return transformers.LlamaModel(transformers.LlamaConfig(**SMALL, intermediate_size=48, num_hidden_layers=2))


REFUSED = {
    "qwen3_5_text": (qwen3_5, "linear_attention"),
    "qwen3_moe": (qwen3_moe, "mixture-of-experts"),
    "mixtral": (mixtral, "mixture-of-experts"),
    "t5": (t5, "encoder-decoder"),
    "vit": (vit, "not a decoder-only language model"),
    "gpt2": (gpt2, "not a decoder-only language model"),
    "llama": (headless, "lm_head"),
}

DOORS = {
    "Pipeline": lambda model, ids: spd_lib.Pipeline(model, 2),
    "generate": lambda model, ids: spd_lib.generate(model, ids, num_stages=2, max_new_tokens=2),
    "decoder": lambda model, ids: model.generate(
        input_ids=ids, custom_generate=spd_lib.decoder(num_stages=2), max_new_tokens=2, do_sample=False
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line_that_names_the_type(name: str) -> None:
    """Recurrent layers, experts, encoder-decoders, vision models, other shapes, models without a head."""
    make, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError) as refusal:
        spd_lib.Pipeline(make().eval(), 2)
    message = str(refusal.value)
    assert repr(name) in message and reason in message and "\n" not in message


def test_not_a_transformers_model() -> None:
    with pytest.raises(UnsupportedModelError, match="'Linear' is refused: it is not a transformers model"):
        spd_lib.Pipeline(nn.Linear(2, 2), 1)


@pytest.mark.parametrize("door", DOORS)
def test_training_mode_is_refused_at_every_door(door: str) -> None:
    """Also after it has proved itself: training can begin at any time."""
    model, ids = fresh("llama").train(), torch.tensor([[1, 2, 3]])
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match="'llama' is in training mode"):
            DOORS[door](model.train(), ids)
        DOORS[door](model.eval(), ids)


class ScalesItsStates(transformers.LlamaForCausalLM):
    """Has the shape of a llama but does something between the layers and the head that no layer knows of."""

    def __init__(self, config: transformers.LlamaConfig, scale: float) -> None:
        super().__init__(config)
        self.lm_head.register_forward_pre_hook(lambda head, hidden: (hidden[0] * self.scale,) if self.active else None)
        self.scale, self.active = scale, False

    def forward(self, *args, **kwargs):
        self.active = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.active = False


def scaling(scale: float) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SMALL, intermediate_size=48, num_hidden_layers=2, eos_token_id=None)
    return ScalesItsStates(config, scale).eval().requires_grad_(False)


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_computes_something_else_is_refused_at_every_door(door: str) -> None:
    """A thousandth is enough to be noticed, and a refusal is not forgotten."""
    model, ids = scaling(1.001), torch.tensor([[1, 2, 3]])
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match="'llama' is refused: run in stages, its logits differ"):
            DOORS[door](model, ids)
    DOORS[door](scaling(1.0), ids)


class AnotherAfterPrefill(ScalesItsStates):
    """Computes something else only when it has a cache to go on from."""

    def forward(self, *args, **kwargs):
        self.scale = 1.001 if kwargs["input_ids"].shape[1] == 1 else 1.0
        return super().forward(*args, **kwargs)


def test_single_steps_are_proved_too() -> None:
    config = transformers.LlamaConfig(**SMALL, intermediate_size=48, num_hidden_layers=2, eos_token_id=None)
    with pytest.raises(UnsupportedModelError, match="its logits differ"):
        spd_lib.Pipeline(AnotherAfterPrefill(config, 1.0).eval(), 2)


class WantsMore(nn.Module):
    """A layer that cannot be called as others are."""

    def forward(self, hidden_states, attention_mask=None, cache=None, **kwargs):
        if not hasattr(cache, "get_seq_length"):
            raise KeyError("where is my cache?")
        return hidden_states


def test_layers_that_fail_in_stages_are_refused_in_one_line() -> None:
    model = fresh("llama")
    model.model.layers[1] = WantsMore()
    with pytest.raises(UnsupportedModelError, match="'llama' is refused: its layers do not run in stages") as refusal:
        spd_lib.Pipeline(model, 2)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("stray", [{"sliding_window": 20}, {"sliding_window": 4096}], ids=str)
def test_a_window_that_the_architecture_ignores_is_refused(stray: dict) -> None:
    """A short text would be right, a long one silently wrong. The user's config is as it was afterwards."""
    model = fresh("llama")
    for name, value in stray.items():
        setattr(model.config, name, value)
    with pytest.raises(UnsupportedModelError, match="'llama' is refused: run in stages, its logits differ"):
        spd_lib.Pipeline(model, 2)
    assert model.config.sliding_window == stray["sliding_window"]


def test_longrope_is_refused() -> None:
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 10000.0}
    rope |= {"original_max_position_embeddings": 16}
    config = transformers.Phi3Config(
        **SMALL,
        intermediate_size=48,
        num_hidden_layers=2,
        pad_token_id=0,
        max_position_embeddings=64,
        rope_parameters=rope,
    )
    with pytest.raises(UnsupportedModelError, match="'phi3' is refused: longrope is not supported"):
        spd_lib.Pipeline(transformers.Phi3ForCausalLM(config).eval(), 2)


def test_soft_capped_logits() -> None:
    """Gemma's cap on the logits is part of its head."""
    config = fresh("gemma3").config
    config.final_logit_softcapping = 0.5
    model = transformers.Gemma3ForCausalLM(config).eval()
    ids = torch.tensor([[5, 9, 3]])
    own = model(input_ids=ids).logits[0, -1]
    torch.testing.assert_close(spd_lib.Pipeline(model, 2).prefill(ids[0].tolist()), own, rtol=1e-4, atol=1e-5)
    assert own.abs().max() <= 0.5


def test_not_a_number_is_refused() -> None:
    """A model with NaN in its weights has nothing to be equal to."""
    model = fresh("llama")
    model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(UnsupportedModelError, match="differ from its own forward"):
        spd_lib.Pipeline(model, 2)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The models on which the probe runs from now on."""
    seen: list[nn.Module] = []
    whole = proof._own_cached

    def counting(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        seen.append(model)
        return whole(model, ids)

    monkeypatch.setattr(proof, "_own_cached", counting)
    return seen


def test_the_probe_runs_once_for_each_model_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever door, number of stages and plan; another object of the same class has to prove itself."""
    seen, model, ids = counted(monkeypatch), fresh("llama"), torch.tensor([[1, 2, 3]])
    for door in DOORS.values():
        door(model, ids)
    spd_lib.Pipeline(model, 3, "balanced")
    assert seen == [model]
    other = fresh("llama")
    spd_lib.Pipeline(other, 2)
    assert seen == [model, other]


def test_a_proved_model_is_not_kept_alive() -> None:
    model = fresh("llama")
    spd_lib.Pipeline(model, 2)
    assert model in proof._proved
    last_look = weakref.ref(model)
    del model
    gc.collect()
    assert last_look() is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_family_passes_with_room_to_spare(family: str, attention: str) -> None:
    """A hundred times better than allowed, whichever attention it uses."""
    model = fresh(family)
    model.set_attn_implementation(attention)
    decoder = Decoder(model)
    ids = [(7 * index) % 97 for index in range(12)]
    own = proof._own_cached(model, torch.tensor([ids]))
    assert proof._distance(proof._staged(decoder, ids), own) < proof.FLOAT32_TOLERANCE / 100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_passes(family: str, dtype: torch.dtype) -> None:
    """Within twice the distance that the model has from itself."""
    spd_lib.Pipeline(fresh(family).to(dtype), 2)


def test_another_attention_is_refused_by_name() -> None:
    model = fresh("llama")
    model.set_attn_implementation("flex_attention")
    with pytest.raises(UnsupportedModelError, match="'llama' is refused: attention 'flex_attention'"):
        spd_lib.Pipeline(model, 2)


def test_what_is_told_about_a_model() -> None:
    """Sizes, windows, dtype."""
    decoder = Decoder(tiny("gemma3"))
    assert (decoder.num_layers, decoder.vocab_size, decoder.max_positions) == (6, 97, 128)
    assert [decoder.window(layer) for layer in range(6)] == [6, None, 6, 6, None, 6]
    assert [Decoder(tiny("mistral")).window(layer) for layer in range(4)] == [6] * 4
    assert [Decoder(tiny("llama")).window(layer) for layer in range(5)] == [None] * 5
    assert decoder.dtype == torch.float32
