"""Attention of many rows on one clock, each with a text of its own: whole buffers, and a mask that says what counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "spd_grouped"
CHUNK_TOKENS = 64


class Memory:
    """Keys and values of all rows in whole buffers, so that attention reads them without a copy."""

    def __init__(self) -> None:
        self.clock = 0
        self._rooms: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def capacity(self) -> int:
        """Tokens that the buffers have room for at this clock."""
        return (self.clock // CHUNK_TOKENS + 1) * CHUNK_TOKENS

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """keys, values: [rows, kv_heads, 1, head_dim] → [rows, kv_heads, capacity, head_dim]."""
        room = self._rooms.get(layer_idx)
        if room is None or room[0].shape[2] < self.capacity:
            old_keys, old_values = room or (None, None)
            room = _widened(old_keys, keys, self.capacity), _widened(old_values, values, self.capacity)
            self._rooms[layer_idx] = room
        for buffer, new in zip(room, (keys, values), strict=True):
            buffer[:, :, self.clock : self.clock + 1] = new
        return room


def _widened(old: Tensor | None, like: Tensor, capacity: int) -> Tensor:
    """Zeros with room for ``capacity`` tokens that begin with what ``old`` holds."""
    new = like.new_zeros(like.shape[0], like.shape[1], capacity, like.shape[3])
    if old is not None:
        new[:, :, : old.shape[2]] = old
    return new


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **options: Any
) -> tuple[Tensor, None]:
    """Attention of one query a row that repeats no keys: the heads of a group are the queries of their key head.

    query: [rows, heads, 1, head_dim], key and value: [rows, kv_heads, keys, head_dim] → [rows, 1, heads, head_dim].
    """
    rows, heads, _, width = query.shape
    grouped = query.reshape(rows, key.shape[1], -1, width)
    scaling = options.get("scaling") or width**-0.5
    scores = torch.matmul(grouped, key.transpose(2, 3)) * scaling
    cap = options.get("softcap")
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    mixed = torch.matmul((scores + attention_mask).softmax(dim=-1), value)
    return mixed.reshape(rows, 1, heads, width), None


AttentionInterface.register(ATTENTION, _attend)


@contextlib.contextmanager
def grouped_attention(config: Any) -> Iterator[None]:
    """The model with our attention; its own comes back afterwards."""
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before
