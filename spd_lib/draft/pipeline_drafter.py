"""The PDM at work: rows kept from cycle to cycle, one query a cycle."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from ..target.flight import Flight, InFlight
from ..target.pipeline import Pipeline
from .module import PipelineDraftModule
from .proposal import Proposal


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
        self.module = module
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
        if (self.module.head.weight.device, self.module.head.weight.dtype) != (decoder.device, decoder.dtype):
            self.module = deepcopy(self.module).to(decoder.device, decoder.dtype)  # the caller's stays as it is
        # After a flush of n − 1 tokens the window must still be whole.
        keep = config.window + pipeline.num_stages
        self._memory = [_RowMemory(keep) for _ in self.module.stack]
        self._tracked: list[_Tracked] = []
        features = [decoder.embed(prompt_ids), *(pipeline.prompt_features[anchor] for anchor in self.anchors)]
        last = [hidden[0, -keep:] for hidden in features if hidden is not None]  # what is older is out of sight
        pipeline.prompt_features.clear()  # they are as large as the prompt, and nobody needs them again
        sums = torch.stack([self.module.contribution(i, hidden) for i, hidden in enumerate(last)]).sum(dim=0)
        positions = list(range(len(prompt_ids) - len(sums), len(prompt_ids)))
        self._write(sums, [config.complete] * len(positions), positions)

    @torch.no_grad()
    def propose(self, flight: Flight) -> Proposal:
        """Draft logits for the next position, from what the tokens in flight know before the stages step."""
        token = flight.tokens[-1]
        embedding = self._decoder.embed([token.token_id])[0, 0]
        newest = _Tracked(token, self.module.contribution(0, embedding))
        self._tracked.append(newest)
        changed = [row for row in self._tracked if self._refresh(row)]
        sums, kinds = torch.stack([row.sums for row in changed]), [row.kind for row in changed]
        self._write(sums, kinds, [row.token.position for row in changed])
        self._tracked = [row for row in self._tracked if row.kind < self.module.config.complete]
        return Proposal(self.module.draft_ids, self._query(newest))

    @property
    def memory_bytes(self) -> int:
        """What the rows take, however long the text is."""
        return sum(memory.num_bytes for memory in self._memory)

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

    def _write(self, sums: Tensor, kinds: list[int], positions: list[int]) -> None:
        """Keys and values of r rows, in every layer. sums: [r, hidden_size]; positions in rising order."""
        rows = self.module.rows(sums, torch.tensor(kinds, device=sums.device))
        rotary = self.module.rotary(torch.tensor(positions, device=sums.device))
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
    """Keys and values of one drafter layer for the last ``keep`` positions or more, in buffers that never grow.

    Rows lie in the order of their positions. When the buffers are full, the newest ``keep`` rows move to the front.
    """

    def __init__(self, keep: int) -> None:
        self._keep, self._first = keep, 0  # _first: the position that lies at the front
        self._room: tuple[Tensor, Tensor] | None = None  # each [kv_heads, 2 · keep, head_dim]

    def write(self, positions: list[int], keys: Tensor, values: Tensor) -> None:
        """keys, values: [kv_heads, r, head_dim], for ``positions`` in rising order."""
        if self._room is None:
            shape = keys.shape[0], 2 * self._keep, keys.shape[2]
            self._room, self._first = (keys.new_zeros(shape), keys.new_zeros(shape)), positions[0]
        if positions[-1] >= self._first + 2 * self._keep:
            shift = positions[-1] - self._keep - self._first
            for buffer in self._room:
                buffer[:, : self._keep] = buffer[:, shift : shift + self._keep].clone()
            self._first += shift
        places = torch.tensor([position - self._first for position in positions], device=keys.device)
        self._room[0][:, places] = keys
        self._room[1][:, places] = values

    def read(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The rows of positions ``start`` … ``end`` − 1; those before the first one kept do not come along."""
        assert self._room is not None
        places = slice(max(start - self._first, 0), end - self._first)
        return self._room[0][:, places], self._room[1][:, places]

    @property
    def num_bytes(self) -> int:
        """What the buffers take."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self._room or ())
