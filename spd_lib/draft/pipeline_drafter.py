"""The PDM at work: rows kept from cycle to cycle, one query a cycle."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..target.flight import Flight, InFlight
from ..target.pipeline import Pipeline
from .module import PipelineDraftModule
from .proposal import Proposal

CHUNK_TOKENS = 256


@dataclass
class _Tracked:
    """A token whose row is not complete yet.

    ``sums``: contributions of the anchors passed so far, [hidden_size]. ``kind``: that of its written row, −1 for none.
    """

    token: InFlight
    sums: Tensor
    kind: int = -1


class PipelineDrafter:
    """Drafts with a :class:`PipelineDraftModule`.

    Rows of completed tokens are computed once and kept. A row in flight is computed when its token enters, and anew
    only when the token has passed an anchor. Rolling back forgets positions; nothing is copied.
    """

    def __init__(self, module: PipelineDraftModule) -> None:
        self.module = module.eval()
        self.anchors = module.config.anchors[1:]  # the embedding it looks up itself

    @torch.no_grad()
    def begin(self, pipeline: Pipeline, prompt_ids: list[int]) -> None:
        """Takes in the whole prompt. Raises ``ValueError`` if the module belongs to another target."""
        config, decoder = self.module.config, pipeline.decoder
        found = (decoder.num_layers, decoder.config.hidden_size, decoder.vocab_size)
        wanted = (config.target_layers, config.hidden_size, config.vocab_size)
        if found != wanted:
            raise ValueError(
                f"the drafter was trained for {config.target} (layers, hidden size, vocabulary: {wanted}); this target "
                f"has {found}: train one for it with `python -m spd_lib train`"
            )
        self._decoder = decoder
        self.module.to(decoder.device, decoder.dtype)
        self._memory = [_RowMemory() for _ in self.module.stack]
        self._tracked: list[_Tracked] = []
        features = [decoder.embed(prompt_ids), *(pipeline.prompt_features[anchor] for anchor in self.anchors)]
        sums = sum(self.module.contribution(i, hidden[0]) for i, hidden in enumerate(features) if hidden is not None)
        assert isinstance(sums, Tensor)
        pipeline.prompt_features.clear()  # they are as large as the prompt, and nobody needs them again
        kinds = torch.full((len(prompt_ids),), config.complete, device=sums.device)
        self._write(sums, kinds, torch.arange(len(prompt_ids), device=sums.device))

    @torch.no_grad()
    def propose(self, flight: Flight) -> Proposal:
        """Draft logits for the next position, from what the tokens in flight know before the stages step."""
        token = flight.tokens[-1]
        embedding = self._decoder.embed([token.token_id])[0, 0]
        newest = _Tracked(token, self.module.contribution(0, embedding))
        self._tracked.append(newest)
        changed = [row for row in self._tracked if self._refresh(row)]
        positions = torch.tensor([row.token.position for row in changed], device=self._decoder.device)
        kinds = torch.tensor([row.kind for row in changed], device=self._decoder.device)
        self._write(torch.stack([row.sums for row in changed]), kinds, positions)
        self._tracked = [row for row in self._tracked if row.kind < self.module.config.complete]
        return Proposal(self.module.draft_ids, self._query(newest))

    def rollback(self, to: int) -> None:
        """Forgets the rows from position ``to`` on: they will be written over."""
        self._tracked = [row for row in self._tracked if row.token.position < to]

    def _refresh(self, row: _Tracked) -> bool:
        """Adds the anchors that the token has passed since; whether the row is another one now."""
        kind = max(row.kind, 0)
        while kind < self.module.config.complete:
            hidden = row.token.features.get(self.anchors[kind])
            if hidden is None:
                break
            kind += 1
            row.sums = row.sums + self.module.contribution(kind, hidden[0, 0])
        changed = kind != row.kind
        row.kind = kind
        return changed

    def _write(self, sums: Tensor, kinds: Tensor, positions: Tensor) -> None:
        """Keys and values of rows, in every layer. sums: [r, hidden_size], kinds and positions: int64 [r]."""
        rows = self.module.rows(sums, kinds)
        rotary = self.module.rotary(positions)
        for layer, memory in zip(self.module.stack, self._memory, strict=True):
            memory.write(positions, *layer.remember(rows, rotary))

    def _query(self, newest: _Tracked) -> Tensor:
        """Draft logits [draft_vocab_size] for the successor of the newest token."""
        module, position = self.module, newest.token.position
        hidden = module.rows(newest.sums, newest.kind)[None]  # [1, hidden_size]
        rotary = module.rotary(torch.tensor([position], device=hidden.device))
        first = max(0, position + 1 - module.config.window)
        for layer, memory in zip(module.stack, self._memory, strict=True):
            keys, values = memory.read(first, position + 1)  # [kv_heads, seen, head_dim]
            queries = layer.ask(hidden, rotary).squeeze(-2)  # [kv_heads, group, head_dim]
            weights = torch.matmul(queries, keys.transpose(1, 2)).softmax(dim=-1)
            hidden = layer.answer(hidden, torch.matmul(weights, values).flatten()[None])
        return module.head(module.norm(hidden))[0]


class _RowMemory:
    """Keys and values of one drafter layer by position: [kv_heads, capacity, head_dim] each."""

    def __init__(self) -> None:
        self._room: tuple[Tensor, Tensor] | None = None

    def write(self, positions: Tensor, keys: Tensor, values: Tensor) -> None:
        """keys, values: [kv_heads, r, head_dim]."""
        needed = int(positions.max()) + 1
        if self._room is None or needed > self._room[0].shape[1]:
            capacity = (needed // CHUNK_TOKENS + 1) * CHUNK_TOKENS
            grown = tuple(new.new_zeros(new.shape[0], capacity, new.shape[2]) for new in (keys, values))
            if self._room is not None:
                for old, new in zip(self._room, grown, strict=True):
                    new[:, : old.shape[1]] = old
            self._room = grown[0], grown[1]
        self._room[0][:, positions] = keys
        self._room[1][:, positions] = values

    def read(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The rows of positions ``start`` … ``end`` − 1."""
        assert self._room is not None
        return self._room[0][:, start:end], self._room[1][:, start:end]
