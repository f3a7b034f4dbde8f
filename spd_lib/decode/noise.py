"""Random numbers that depend on where they are used and on nothing else.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), a counter-based generator: the
same key and counter give the same integers in every order, on every device. Key: the seed. Counter: block of token
ids, position, row, purpose.
"""

from __future__ import annotations

import torch
from torch import Tensor

GUMBEL, DRAFT, ACCEPT, CHOICE = range(4)  # the purpose of a number, so that no two uses share one

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Four 32-bit words per counter, as int64 tensors of the counters' shape.

    Products of 32-bit words are taken in int64, whose wrap-around keeps all 64 bits; masks undo the sign.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _MASK) ^ c1 ^ k0,
            p1 & _MASK,
            ((p0 >> 32) & _MASK) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def noise_words(seed: int, row: int, position: int, count: int, purpose: int, device: torch.device | str) -> Tensor:
    """The first ``count`` 32-bit words for this use, int64 [count] with values 0 … 2³² − 1."""
    blocks = torch.arange((count + 3) // 4, device=device)
    same = [torch.full_like(blocks, value & _MASK) for value in (position, row, purpose)]
    words = philox((blocks, *same), (seed & _MASK, (seed >> 32) & _MASK))  # type: ignore[arg-type]
    return torch.stack(words, dim=1).flatten()[:count]


def uniforms(words: Tensor) -> Tensor:
    """32-bit words → float64 in (0, 1), both ends excluded."""
    return (words.double() + 0.5) * 2.0**-32


def uniform(seed: int, row: int, position: int, purpose: int, attempt: int = 0) -> float:
    """One number in (0, 1); another one for each ``attempt`` at the same use."""
    return uniforms(noise_words(seed, row, position, attempt + 1, purpose, "cpu")[-1]).item()


def gumbel(seed: int, row: int, position: int, vocab_size: int, device: torch.device | str) -> Tensor:
    """Standard Gumbel noise G = −log(−log u), one value for each target token id, float32 [vocab_size]."""
    words = noise_words(seed, row, position, vocab_size, GUMBEL, device)
    return -torch.log(-torch.log(uniforms(words))).float()
