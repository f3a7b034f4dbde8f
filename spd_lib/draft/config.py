"""The shape of a Pipeline Draft Module, and the target that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..target.layers import Decoder


@dataclass(frozen=True)
class DraftConfig:
    """Shape of a PDM and the target it was trained for.

    ``anchors``: layer counts 0 = a_0 < a_1 < … < a_m = L on the target's layer ruler. ``window``: how many tokens
    the module looks back at most, the newest included: its trained span. ``tokenizer``: fingerprint of the vocabulary.
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
        object.__setattr__(self, "anchors", tuple(self.anchors))
        if self.anchors[:1] != (0,) or self.anchors[-1] != self.target_layers or len(self.anchors) < 2:
            raise ValueError(f"anchors must run from 0 to the target's {self.target_layers} layers, got {self.anchors}")
        if any(a >= b for a, b in zip(self.anchors, self.anchors[1:], strict=False)):
            raise ValueError(f"anchors must rise, got {self.anchors}")
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key heads, or head_dim={self.head_dim} is odd"
            )
        for name in ("num_layers", "draft_vocab_size", "window"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

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
