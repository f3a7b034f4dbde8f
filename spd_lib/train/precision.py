"""What the drafter's arithmetic is done in while it is trained; its weights stay float32."""

from __future__ import annotations

import torch

PRECISIONS = ("bf16", "no")


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Matrix products in bfloat16 ("bf16"), or everything in float32 ("no")."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
