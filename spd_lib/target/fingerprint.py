"""Names for weights: two models share one only if they compute the same."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

SAMPLED_WEIGHTS = 1024  # of each tensor, for the fingerprint of a model


def fingerprint(model: nn.Module) -> str:
    """Hash of weights spread over every tensor of the model: a few of each, so that large models take no time."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().flatten()
        some = flat[:: max(1, len(flat) // SAMPLED_WEIGHTS)].float().cpu()
        digest.update(f"{name} {list(parameter.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()


def weights_digest(module: nn.Module) -> str:
    """Names the weights: sixteen hex digits of their sha256 in bfloat16."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        flat = tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        digest.update(name.encode() + flat.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
