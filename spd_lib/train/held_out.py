"""How well a drafter does on texts that it is not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.metrics import acceptance_by_fill
from ..core.plan import even
from ..core.staircase import row_kinds
from ..draft.module import PipelineDraftModule
from ..target.layers import Decoder
from .draws import cut
from .precision import autocast, read_in
from .teacher import Stored, Streamed, padded
from .tokens import Conversation

FILLS = (1, 2, 3, 4, 6, 8, 12, 16)


class HeldOut:
    """Held-out texts and the target's greedy choices on them. ``batch_tokens``: of one pass, padding included."""

    def __init__(
        self,
        decoder: Decoder,
        chats: Sequence[Conversation],
        source: Stored | Streamed,
        batch_tokens: int,
        precision: str,
    ) -> None:
        self.decoder, self.chats, self.source = decoder, chats, source
        self.batch_tokens, self.precision = batch_tokens, precision
        self._choices: dict[tuple[int, ...], Tensor] = {}

    @torch.no_grad()
    def check(self, module: PipelineDraftModule, stages: Sequence[int], max_chats: int) -> dict[str, Any]:
        """Agreement with the target's greedy choice by n and fill (even plan), and the acceptance it implies."""
        chats = sorted(self.chats[:max_chats], key=lambda chat: len(chat.ids))
        found: dict[str, Any] = {}
        for num_stages in stages:
            if num_stages <= self.decoder.num_layers and chats:
                plan = even(self.decoder.num_layers, num_stages)
                fills = sorted({min(fill, num_stages) for fill in FILLS})
                anchors = module.config.anchors
                shares = {fill: self._agreement(module, chats, row_kinds(plan, anchors, fill)) for fill in fills}
                by_fill = [shares[max(f for f in fills if f <= fill)] for fill in range(1, num_stages + 1)]
                found[f"n={num_stages}"] = {
                    "agreement": {str(fill): round(share, 4) for fill, share in shares.items()},
                    "acceptance": round(acceptance_by_fill(by_fill), 4),
                }
        return found

    def _agreement(self, module: PipelineDraftModule, chats: Sequence[Conversation], kinds: tuple[int, ...]) -> float:
        right = asked = 0
        for batch in cut(list(chats), self.batch_tokens):
            select = padded(batch)[1].to(self.decoder.device)
            states = read_in(self.source.states(batch), self.precision)
            with autocast(self.decoder.device, self.precision):
                logits = module(states, kinds, select=select)
            drafted = module.draft_ids[logits.argmax(dim=-1)]
            truth = self._chosen(batch, states[-1][select])
            right += int((drafted == truth).sum())
            asked += len(truth)
        return right / asked

    def _chosen(self, chats: Sequence[Conversation], hidden: Tensor) -> Tensor:
        """The target's greedy choices after hidden states [asked, hidden_size], remembered  # int64 [asked]"""
        name = tuple(map(id, chats))
        if name not in self._choices:
            self._choices[name] = self.decoder.head(hidden[None].to(self.decoder.dtype)).argmax(dim=-1)
        return self._choices[name]
