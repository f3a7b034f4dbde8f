"""How a drafter is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

PRECISIONS = ("bf16", "no")


@dataclass(frozen=True)
class TrainConfig:
    """How a drafter is trained.

    ``batch_tokens``: tokens of one pass, padding included, of which ``accumulate`` make a step, each with a moment of
    its own. The learning rate rises for ``warmup_steps``, stays, and falls to zero over the last ``decay_share``.
    ``whole_chats``: learn the messages as well as the answers, all but what every chat begins with.
    """

    epochs: float = 4.0
    max_steps: int | None = None
    batch_tokens: int = 2048
    accumulate: int = 1
    learning_rate: float = 6e-3
    head_learning_rate: float = 2e-3
    warmup_steps: int = 30
    decay_share: float = 0.3
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    min_stages: int = 2
    max_stages: int = 16
    expected_acceptance: float = 0.6
    seed: int = 0
    save_every_s: float = 300.0
    check_every_steps: int = 250
    mixed_precision: str = "bf16"
    whole_chats: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "max_steps", "batch_tokens", "accumulate", "learning_rate", "check_every_steps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, got {value}")
        if not 0 <= self.decay_share <= 1:
            raise ValueError(f"decay_share must be between 0 and 1, got {self.decay_share}")
        if not 1 <= self.min_stages <= self.max_stages:
            raise ValueError(f"stages must be at least 1 and rise, got {self.min_stages} to {self.max_stages}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be between 0 and 2⁶³ − 1, got {self.seed}")
        if self.mixed_precision not in PRECISIONS:
            raise ValueError(f"mixed_precision must be {' or '.join(PRECISIONS)}, got {self.mixed_precision!r}")
