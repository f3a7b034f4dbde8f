"""The shape of a Pipeline Draft Module, and the target that it belongs to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..target.layers import Decoder

LARGEST = 2**20  # of any size here; what is larger is a mistake that would fill the memory
COUNTS = (
    "target_layers",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "num_layers",
    "draft_vocab_size",
    "window",
)


@dataclass(frozen=True)
class DraftConfig:
    """Shape of a PDM and the target it was trained for.

    ``anchors``: layer counts 0 = a_0 < a_1 < … < a_m = L on the target's layer ruler. ``window``: how many tokens
    the module looks back at most, the newest included: its trained span. ``tokenizer``: fingerprint of the vocabulary.
    Raises ``ValueError`` naming the field that cannot be.
    """

    target: str
    tokenizer: str
    target_layers: int
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    anchors: tuple[int, ...]
    draft_vocab_size: int
    window: int
    rope_theta: float
    norm_eps: float

    def __post_init__(self) -> None:
        for name in COUNTS:
            _must(name, getattr(self, name), f"a whole number from 1 to {LARGEST:,}", _is_count)
        for name in ("rope_theta", "norm_eps"):
            _must(name, getattr(self, name), "a number above 0", _is_positive)
        for name in ("target", "tokenizer"):
            _must(name, getattr(self, name), "a text", lambda value: isinstance(value, str))
        _must("anchors", self.anchors, "whole numbers", _are_whole)
        object.__setattr__(self, "anchors", tuple(self.anchors))
        if self.anchors[:1] != (0,) or self.anchors[-1] != self.target_layers or len(self.anchors) < 2:
            raise ValueError(f"anchors must run from 0 to the target's {self.target_layers} layers, got {self.anchors}")
        if any(a >= b for a, b in zip(self.anchors, self.anchors[1:], strict=False)):
            raise ValueError(f"anchors must rise, got {self.anchors}")
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key heads, or head_dim={self.head_dim} is odd"
            )
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"draft_vocab_size must be at most the vocabulary's {self.vocab_size}, got {self.draft_vocab_size}"
            )

    @classmethod
    def like(cls, decoder: Decoder, **settings: Any) -> DraftConfig:
        """A config with the target's own shape of a layer; ``settings`` say the rest and may say otherwise."""
        config = decoder.config
        heads = config.num_attention_heads
        shape = {
            "target_layers": decoder.num_layers,
            "vocab_size": decoder.vocab_size,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_heads": heads,
            "num_kv_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
            "num_layers": 2,
            "anchors": default_anchors(decoder.num_layers),
            "rope_theta": _rope_theta(config),
            "norm_eps": getattr(config, "rms_norm_eps", 1e-6),
        }
        return cls(**(shape | settings))

    @property
    def complete(self) -> int:
        """The kind of a row whose token has passed every layer: the index of the last anchor."""
        return len(self.anchors) - 1


def _must(name: str, value: Any, what: str, holds: Callable[[Any], bool]) -> None:
    if not holds(value):
        raise ValueError(f"{name} must be {what}, got {value!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 1 <= value <= LARGEST


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _are_whole(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_whole, value))


def default_anchors(num_layers: int) -> tuple[int, ...]:
    """About eight places on a ruler of ``num_layers`` layers, from the embedding to the last output."""
    step = -(-num_layers // 8)
    return (*range(0, num_layers - step // 2, step), num_layers)


def _rope_theta(config: Any) -> float:
    """The base of the target's rotary embedding, wherever its config keeps it; 10,000 if it has none."""
    parameters = getattr(config, "rope_parameters", None) or {}
    if "rope_theta" not in parameters:  # families with several kinds of layers keep one entry a kind
        parameters = next((entry for entry in parameters.values() if isinstance(entry, dict)), {})
    return float(parameters.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0)
