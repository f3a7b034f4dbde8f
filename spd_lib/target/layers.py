"""The one module that speaks to transformers' decoder layers.

Nothing is copied from a modelling file: the model's own embedding, layers, norm and head are called, one layer at a
time, with a memory of ours in place of its cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from .state import StageState

KNOWN_LAYER_TYPES = ("full_attention", "sliding_attention")
KNOWN_ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
PARTS = ("embed_tokens", "layers", "norm", "rotary_emb")


# What tokens know of themselves: for each anchor k, the output of the first k layers, [1, q, hidden_size], before any
# final norm. The keys say which anchors are wanted; an anchor that is not passed yet is None.
Features = dict[int, Tensor | None]


class UnsupportedModelError(ValueError):
    """The model cannot be cut into stages exactly; the message names its type and the reason."""


def _refusal(model: nn.Module) -> str | None:
    """Why this model cannot be staged, or ``None`` if its shape is one we know."""
    config = getattr(model, "config", None)
    if config is None:
        return "it is not a transformers model"
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder; only decoder-only language models can be cut into stages"
    base = getattr(model, "model", None)
    if not hasattr(model, "lm_head") or not all(hasattr(base, part) for part in PARTS):
        return f"it is not a decoder-only language model with lm_head and model.{', model.'.join(PARTS)}"
    text = config.get_text_config(decoder=True)
    if any(getattr(text, key, None) for key in EXPERT_KEYS):
        return "mixture-of-experts layers are not supported"
    unknown = set(getattr(text, "layer_types", None) or KNOWN_LAYER_TYPES) - set(KNOWN_LAYER_TYPES)
    if unknown:
        return f"layers of type {', '.join(sorted(unknown))} are not supported: their state cannot be rolled back yet"
    if "longrope" in str(getattr(text, "rope_parameters", None)):
        return "longrope is not supported: its frequencies change with the length of the text"
    if getattr(text, "use_bidirectional_attention", False):
        return "its attention looks ahead"
    attention = getattr(config, "_attn_implementation", None)
    if attention not in KNOWN_ATTENTION:
        return f"attention {attention!r} is not supported; load it with attn_implementation='sdpa'"
    return None


def model_type(model: nn.Module) -> str:
    """The name that transformers gives to the model's family, for messages."""
    return getattr(getattr(model, "config", None), "model_type", type(model).__name__)


class Decoder:
    """A decoder-only causal language model, opened up: embedding, layers 0 … L − 1, final norm and head.

    Raises :class:`UnsupportedModelError` for encoder-decoders, experts, recurrent layers and models without a head.
    """

    def __init__(self, model: nn.Module) -> None:
        reason = _refusal(model)
        if reason is not None:
            raise UnsupportedModelError(f"model type {model_type(model)!r} is refused: {reason}")
        self.model = cast(Any, model)  # its parts were looked at above; their types are the family's own
        self.config = self.model.config.get_text_config(decoder=True)
        self.base = self.model.model
        self._layer_types = self._find_layer_types()
        self._rotary_by_type = "layer_type" in inspect.signature(self.base.rotary_emb.forward).parameters
        # Newer transformers call it `cache` and warn about the old name.
        parameters = inspect.signature(type(self.base.layers[0]).forward).parameters
        self._memory_keyword = "cache" if "cache" in parameters else "past_key_values"

    def _find_layer_types(self) -> list[str]:
        given = getattr(self.config, "layer_types", None)
        if given:
            return list(given)
        kind = "full_attention" if getattr(self.config, "sliding_window", None) is None else "sliding_attention"
        return [kind] * len(self.base.layers)

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.base.layers)

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self.model.lm_head.out_features

    @property
    def max_positions(self) -> int | None:
        """Longest text the model is made for, in tokens, if its config says so."""
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def device(self) -> torch.device:
        """Where the embedding lives."""
        return self.base.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that hidden states are computed in."""
        return self.base.embed_tokens.weight.dtype

    @property
    def head_cost(self) -> float:
        """Weights of the head ÷ weights of one layer: its cost in layer units, since decoding reads weights."""
        layer = sum(parameter.numel() for parameter in self.base.layers[0].parameters())
        return self.model.lm_head.weight.numel() / layer

    def window(self, layer: int) -> int | None:
        """How many tokens the layer attends to, itself included; ``None`` for all of them."""
        return self.config.sliding_window if self._layer_types[layer] == "sliding_attention" else None

    def embed(self, token_ids: list[int]) -> Tensor:
        """Ids of q tokens → hidden states [1, q, hidden_size], what depth 0 knows of a token."""
        return self.base.embed_tokens(torch.tensor([token_ids], device=self.device))

    def run_layers(self, layers: range, hidden: Tensor, state: StageState, features: Features | None = None) -> Tensor:
        """Runs ``layers`` over q tokens that follow the ``state.length`` remembered ones.

        hidden: [1, q, hidden_size] → [1, q, hidden_size], the last layer's output before any final norm. The keys and
        values of the q tokens are written to ``state``; the caller moves its length. ``features`` is filled on the way.
        """
        start, count = state.length, hidden.shape[1]
        positions = torch.arange(start, start + count, device=hidden.device)[None]  # [1, q]
        masks = {index: self._mask(count, start, self.window(index), hidden) for index in layers}
        return self.drive(layers, hidden, positions, masks, state, features)

    def drive(
        self,
        layers: range,
        hidden: Tensor,
        positions: Tensor,
        masks: Mapping[int, Tensor | None],
        memory: Any,
        features: Features | None = None,
    ) -> Tensor:
        """Calls the model's own ``layers``, one after the other: [B, q, hidden_size] → [B, q, hidden_size].

        positions: [B or 1, q]; ``masks[layer]``: additive [B or 1, 1, q, keys], or ``None``; ``memory`` stands in for
        transformers' cache.
        """
        rotary: dict[str, tuple[Tensor, Tensor]] = {}
        for index in layers:
            kind = self._layer_types[index]
            if kind not in rotary:
                extra = (kind,) if self._rotary_by_type else ()
                rotary[kind] = self.base.rotary_emb(hidden, positions, *extra)
            hidden = self.base.layers[index](
                hidden,
                attention_mask=masks[index],
                position_ids=positions,
                position_embeddings=rotary[kind],
                **{self._memory_keyword: memory},
            )
            if features is not None and index + 1 in features:
                features[index + 1] = hidden
        return hidden

    def read(self, ids: Tensor, anchors: Sequence[int]) -> Tensor:
        """Whole texts in one ordinary forward: int64 [B, S] → hidden states [len(anchors), B, S, hidden_size].

        Attention is causal, so what stands in a text's place does not depend on what comes after it, padding included.
        """
        hidden = self.base.embed_tokens(ids.to(self.device))
        features: Features = dict.fromkeys(anchors) | {0: hidden}
        layers = range(max(anchors))
        positions = torch.arange(ids.shape[1], device=hidden.device)[None]
        masks = {index: self._mask(ids.shape[1], 0, self.window(index), hidden) for index in layers}
        self.drive(layers, hidden, positions, masks, None, features)
        return torch.stack([hidden for hidden in map(features.get, anchors) if hidden is not None])

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and language-model head: [1, q, hidden_size] → float32 logits [q, vocab_size]."""
        logits = self.model.lm_head(self.base.norm(hidden))[0]
        cap = getattr(self.config, "final_logit_softcapping", None)
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits.float()

    def _mask(self, count: int, start: int, window: int | None, hidden: Tensor) -> Tensor | None:
        """Additive mask [1, 1, q, start + q], or ``None`` where the attention needs none.

        One token sees all that its memory hands out, and the memory already cuts to the window. Several tokens at the
        start of a text are what the attention's own causal flag is for, as long as no window ends before them.
        """
        attention = self.model.config._attn_implementation
        if count == 1 or attention.startswith("flash"):
            return None
        if attention == "sdpa" and start == 0 and (window is None or count <= window):
            return None
        query = torch.arange(start, start + count, device=hidden.device)[:, None]
        key = torch.arange(start + count, device=hidden.device)[None, :]
        hidden_from_view = key > query
        if window is not None:
            hidden_from_view |= key <= query - window
        mask = torch.zeros(hidden_from_view.shape, dtype=hidden.dtype, device=hidden.device)
        return mask.masked_fill_(hidden_from_view, torch.finfo(hidden.dtype).min)[None, None]
