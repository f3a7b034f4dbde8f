"""KL(target ‖ draft) on the draft vocabulary, head included, without ever holding all logits (method, §5.2)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ROWS = 256  # logits of so many positions at a time stay in the processor's cache


def draft_loss(
    hidden: Tensor, weight: Tensor, known: Tensor, target_weight: Tensor, softcap: float | None = None
) -> Tensor:
    """Mean KL divergence from the target's distribution to the draft's, over positions.

    ``hidden``: [asked, hidden_size], what the drafter read; ``weight``: its head [draft_vocab_size, hidden_size];
    ``known`` and ``target_weight``: the same of the target, whose distribution is renormalised on the draft vocabulary.
    Raises ``ValueError`` when no position asks: a mean over nothing would pass for a perfect drafter.
    """
    if not len(hidden):
        raise ValueError("no position asks for a draft: the batch has no answer tokens")
    return _HeadKL.apply(hidden, weight, known, target_weight, softcap)


class _HeadKL(torch.autograd.Function):
    """The gradient of KL with respect to the draft logits is draft minus target probabilities: found on the way."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, known: Tensor, target_weight: Tensor, softcap: float | None
    ) -> Tensor:
        count, dtype = len(hidden), target_weight.dtype
        head, loss = weight.to(dtype), hidden.new_zeros((), dtype=torch.float32)
        into_hidden, into_weight = torch.empty_like(hidden, dtype=dtype), torch.zeros_like(weight)
        for start in range(0, count, CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            asked = hidden[rows].to(dtype)
            wanted = F.linear(known[rows], target_weight).float()
            if softcap is not None:
                wanted = torch.tanh(wanted / softcap) * softcap
            wanted = wanted.log_softmax(dim=-1)
            drafted = F.linear(asked, head).float().log_softmax(dim=-1)
            target = wanted.exp()
            loss += torch.dot(target.flatten(), wanted.sub_(drafted).flatten())
            slope = drafted.exp_().sub_(target).div_(count).to(dtype)
            into_hidden[rows] = slope @ head
            into_weight += slope.T @ asked
        ctx.save_for_backward(into_hidden.to(hidden.dtype), into_weight)
        return loss / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        into_hidden, into_weight = ctx.saved_tensors
        return into_hidden * grad, into_weight * grad, None, None, None
