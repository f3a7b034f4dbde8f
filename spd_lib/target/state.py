"""What a stage remembers of the tokens that have passed it, and how it forgets them again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_TOKENS = 256  # capacity grows by this much at least, and doubles while small


class AttentionMemory:
    """Keys and values of one attention layer, indexed by position.

    ``window``: how many tokens the layer attends to, itself included; ``None`` for all. All of them are kept even so:
    after a rollback the window reaches further back.
    """

    def __init__(self, window: int | None) -> None:
        self.window = window
        self._room: tuple[Tensor, Tensor] | None = None  # keys, values, each [1, kv_heads, capacity, head_dim]

    def write(self, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes q tokens at ``start`` and returns what they may attend to.

        keys, values: [1, kv_heads, q, head_dim] → [1, kv_heads, seen, head_dim]. A single token gets its window only;
        several tokens get everything and need a mask.
        """
        end = start + keys.shape[2]
        if self._room is None or end > self._room[0].shape[2]:
            old_keys, old_values = self._room or (None, None)
            # Both or neither: Ctrl-C may come in between.
            self._room = _grown(old_keys, keys, end), _grown(old_values, values, end)
        all_keys, all_values = self._room
        all_keys[:, :, start:end] = keys
        all_values[:, :, start:end] = values
        first = max(0, end - self.window) if self.window is not None and keys.shape[2] == 1 else 0
        return all_keys[:, :, first:end], all_values[:, :, first:end]


def _grown(old: Tensor | None, like: Tensor, needed: int) -> Tensor:
    """A buffer shaped like ``like`` with room for ``needed`` tokens that begins with what ``old`` holds."""
    room = 0 if old is None else old.shape[2]
    capacity = -(-max(needed, 2 * room if room < 8 * CHUNK_TOKENS else room) // CHUNK_TOKENS) * CHUNK_TOKENS
    new = torch.empty(like.shape[0], like.shape[1], capacity, like.shape[3], dtype=like.dtype, device=like.device)
    if old is not None:
        new[:, :, :room] = old
    return new


class StageState:
    """The memory of one stage: one :class:`AttentionMemory` a layer, and one length for all of them.

    It stands in for transformers' cache in the layers it is handed to. A layer's write only counts once the stage
    has moved the length on, so an interrupted step leaves no trace.
    """

    def __init__(self, windows: dict[int, int | None]) -> None:
        self._memories = {layer: AttentionMemory(window) for layer, window in windows.items()}
        self.length = 0

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Called by the attention of layer ``layer_idx`` with the keys and values of the q new tokens."""
        return self._memories[layer_idx].write(self.length, keys, values)

    def advance(self, count: int) -> None:
        """Counts the ``count`` tokens just written as remembered."""
        self.length += count

    def rollback(self, to: int) -> None:
        """Forgets every token from position ``to`` on. Position-indexed memory has nothing to move or copy."""
        if not 0 <= to <= self.length:
            raise ValueError(f"cannot roll back to length {to}: {self.length} tokens are remembered")
        self.length = to
