"""What the drafter's arithmetic is done in while it is trained; its weights stay float32."""

from __future__ import annotations

import torch
from torch import Tensor


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Matrix products in bfloat16 ("bf16"), or everything in float32 ("no")."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def read_in(states: Tensor, precision: str) -> Tensor:
    """The target's hidden states or weights as the drafter's arithmetic takes them; "no" takes float32 alone."""
    return states if precision == "bf16" else states.float()
