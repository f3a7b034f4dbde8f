"""Muon for the matrices inside the drafter, AdamW for its head, scales and norms, and one learning rate over time.

Muon makes every update of a matrix orthogonal. In short trials it was ahead of AdamW alone after as many steps.
"""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from ..draft.module import PipelineDraftModule


def make_optimizers(
    module: PipelineDraftModule, matrix_rate: float, other_rate: float, weight_decay: float
) -> list[Optimizer]:
    """The optimizers of a module's parameters, each parameter in one of them."""
    inner = [*module.anchor_projections.parameters(), *module.layers.parameters()]
    matrices = [parameter for parameter in inner if parameter.ndim == 2]
    known = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in module.parameters() if id(parameter) not in known]
    return [
        torch.optim.Muon(matrices, lr=matrix_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_at(step: int, num_steps: int, warmup_steps: int, decay_share: float) -> float:
    """The learning rate at a step as a share of the highest one: up, level, and down over the last ``decay_share``."""
    left = (num_steps - step) / max(1.0, decay_share * num_steps)
    return min(1.0, (step + 1) / max(1, warmup_steps), left)


def set_rate(optimizers: list[Optimizer], share: float) -> None:
    """Sets every learning rate to ``share`` of what it was made with."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group.setdefault("highest_lr", group["lr"])
