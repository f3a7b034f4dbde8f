"""The Pipeline Draft Module (PDM): a few attention layers that read what every token knows so far.

Its memory holds one *row* a token, made of the hidden states at the anchors that the token has passed. Only the newest
token asks: it runs through the layers and reads the rows. A row's keys and values come from its features alone, so
they are computed once when the token passes an anchor, and training and inference see the same thing for every n,
plan and fill. (Paper, section "Multi-depth feature aggregation"; the first version calls this the speculation module.)
"""

# No `from __future__ import annotations` here: the hub mixin reads the type of `config` to load it.
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from huggingface_hub import PyTorchModelHubMixin
from torch import Tensor, nn

from .config import DraftConfig

if TYPE_CHECKING:
    from ..target.layers import Decoder

Rotary = tuple[Tensor, Tensor]  # cosines and sines, each [positions, head_dim]


class DraftLayer(nn.Module):
    """One layer: the query reads the rows, then an MLP. Norms before both, residuals around both."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        size, width = config.hidden_size, config.head_dim
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, width
        self.query_norm = nn.RMSNorm(size, config.norm_eps)
        self.row_norm = nn.RMSNorm(size, config.norm_eps)
        self.q_proj = nn.Linear(size, config.num_heads * width, bias=False)
        self.k_proj = nn.Linear(size, config.num_kv_heads * width, bias=False)
        self.v_proj = nn.Linear(size, config.num_kv_heads * width, bias=False)
        self.o_proj = nn.Linear(config.num_heads * width, size, bias=False)
        self.mlp_norm = nn.RMSNorm(size, config.norm_eps)
        self.gate_proj = nn.Linear(size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, size, bias=False)

    def remember(self, rows: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """Keys and values of rows: [..., S, hidden_size] → two of [..., kv_heads, S, head_dim]."""
        rows = self.row_norm(rows)
        shape = (*rows.shape[:-1], self.num_kv_heads, self.head_dim)
        keys = self.k_proj(rows).view(shape).transpose(-3, -2)
        values = self.v_proj(rows).view(shape).transpose(-3, -2)
        return rotate(keys, rotary), values

    def ask(self, hidden: Tensor, rotary: Rotary) -> Tensor:
        """Queries, the heads of a group beside their key head: [..., S, hidden_size] → [..., kv_heads, group, S, d]."""
        queries = self.q_proj(self.query_norm(hidden))
        queries = queries.view(*hidden.shape[:-1], self.num_heads, self.head_dim).transpose(-3, -2)
        queries = rotate(queries, rotary) * self.head_dim**-0.5
        return queries.unflatten(-3, (self.num_kv_heads, self.num_heads // self.num_kv_heads))

    def answer(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """What was read joins the query's stream: hidden and mixed [..., hidden_size] → [..., hidden_size]."""
        hidden = hidden + self.o_proj(mixed)
        inner = self.mlp_norm(hidden)
        return hidden + self.down_proj(F.silu(self.gate_proj(inner)) * self.up_proj(inner))


class PipelineDraftModule(nn.Module, PyTorchModelHubMixin):
    """Weights of the drafter, with ``from_pretrained``, ``save_pretrained`` and ``push_to_hub``.

    One set of weights serves every number of stages and every plan: a token offers whatever anchors it has passed.
    """

    draft_ids: Tensor  # int64 [draft_vocab_size], draft id → target id

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        size, kinds = config.hidden_size, len(config.anchors)
        self.anchor_projections = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in config.anchors)
        self.kind_scales = nn.Parameter(torch.ones(kinds, size))
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(size, config.norm_eps)
        self.head = nn.Linear(size, config.draft_vocab_size, bias=False)
        self.register_buffer("draft_ids", torch.arange(config.draft_vocab_size))

    @property
    def stack(self) -> list[DraftLayer]:
        """The layers in order."""
        return cast("list[DraftLayer]", list(self.layers))

    # --- features

    def contribution(self, anchor: int, hidden: Tensor) -> Tensor:
        """What the hidden states at anchor number ``anchor`` add to a row: [..., hidden_size] → same."""
        return self.anchor_projections[anchor](self._normalised(hidden))

    def rows(self, sums: Tensor, kinds: Tensor | int) -> Tensor:
        """Rows from the sums of contributions up to each row's kind: [..., hidden_size] → same (method, §2.2)."""
        return self._normalised(sums) * self.kind_scales[kinds]

    def _normalised(self, hidden: Tensor) -> Tensor:
        return F.rms_norm(hidden, (hidden.shape[-1],), eps=self.config.norm_eps)

    def rotary(self, positions: Tensor) -> Rotary:
        """Rotary embedding of positions  # int64 [S] → two of [S, head_dim]."""
        width = self.config.head_dim
        exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
        angles = positions[:, None].float() * self.config.rope_theta**-exponents
        angles = torch.cat([angles, angles], dim=-1)
        dtype = self.kind_scales.dtype
        return angles.cos().to(dtype), angles.sin().to(dtype)

    # --- training: every position of a text asks at once

    def forward(self, states: Tensor, kinds: Sequence[int], **options: Any) -> Tensor:
        """Draft logits for the successor of every selected position  # [selected, draft_vocab_size]

        The arguments are those of :meth:`read`.
        """
        return self.head(self.read(states, kinds, **options))

    def read(
        self,
        states: Tensor,
        kinds: Sequence[int],
        *,
        window: int | None = None,
        select: Tensor | None = None,
    ) -> Tensor:
        """What every selected position has read, ready for the head  # [selected, hidden_size]

        ``states``: [anchors, B, S, hidden_size], a teacher-forced pass of the target seen at the anchors. ``kinds``:
        the rows in flight, newest first (:func:`spd_lib.core.staircase.row_kinds`); older rows are complete.
        ``select``: bool [B, S], positions that ask; all by default.
        """
        count = states.shape[2]
        if select is None:
            select = torch.ones(states.shape[1:3], dtype=torch.bool, device=states.device)
        used = sorted({*kinds, 0, self.config.complete})
        rows = self._rows_of(states, used)
        rotary = self.rotary(torch.arange(count, device=states.device))
        hidden = rows[0]
        visible = self._visible(count, len(kinds), window or self.config.window, states.device)
        asked = hidden[select]
        for layer in self.stack:
            memory = {kind: layer.remember(rows[kind], rotary) for kind in used}
            mixed = staircase_attention(layer.ask(hidden, rotary), memory, kinds, self.config.complete, visible)
            asked = layer.answer(asked, mixed[select])
            hidden = torch.zeros_like(hidden).masked_scatter(select[..., None], asked.to(hidden.dtype))
        return self.norm(asked)

    def _rows_of(self, states: Tensor, kinds: Sequence[int]) -> dict[int, Tensor]:
        """Rows of every position in the given kinds, each [B, S, hidden_size]."""
        sums, rows = self.contribution(0, states[0]), {}
        for kind in range(len(self.config.anchors)):
            if kind:
                sums = sums + self.contribution(kind, states[kind])
            if kind in kinds:
                rows[kind] = self.rows(sums, kind)
        return rows

    def _visible(self, count: int, fill: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Which complete rows [S, S] and which rows in flight [S, fill] a query at each position may read."""
        place = torch.arange(count, device=device)
        distance = place[:, None] - place[None, :]
        steps = torch.arange(fill, device=device)
        return (distance >= fill) & (distance < window), (steps[None] <= place[:, None]) & (steps[None] < window)

    # --- making one

    @classmethod
    def for_decoder(cls, decoder: "Decoder", config: DraftConfig, draft_ids: Tensor) -> "PipelineDraftModule":
        """A fresh module, with the target's last layers, final norm and head rows as initial weights where they fit.

        ``draft_ids``: int64 [draft_vocab_size], the target ids it can draft.
        """
        module = cls(config)
        with torch.no_grad():
            module.draft_ids.copy_(draft_ids)
            module.head.weight.copy_(decoder.model.lm_head.weight[draft_ids.to(decoder.device)])
            _copy_where_it_fits(module.norm.weight, _scale(decoder.base.norm))
            for index, projection in enumerate(module.anchor_projections):
                # At first a row is its embedding and, once complete, its last output; the rest is a hint.
                gain = 1.0 if index in (0, config.complete) else 0.1
                nn.init.eye_(cast(nn.Linear, projection).weight).mul_(gain)
            sources = decoder.base.layers[decoder.num_layers - config.num_layers :]
            for layer, source in zip(module.stack, sources, strict=True):
                _copy_layer(layer, source)
        return module


def rotate(vectors: Tensor, rotary: Rotary) -> Tensor:
    """Rotary position embedding of [..., S, head_dim]."""
    cosines, sines = rotary
    first, second = vectors.chunk(2, dim=-1)
    return vectors * cosines + torch.cat([-second, first], dim=-1) * sines


def staircase_attention(
    queries: Tensor,
    memory: dict[int, tuple[Tensor, Tensor]],
    kinds: Sequence[int],
    complete: int,
    visible: tuple[Tensor, Tensor],
) -> Tensor:
    """Attention of each position over complete rows and, for the nearest ones, over rows in flight.

    queries: [B, kv_heads, group, S, d]; memory[kind]: keys and values [B, kv_heads, S, d] → [B, S, heads · d].
    """
    complete_keys, complete_values = memory[complete]
    older, nearest = visible
    behind = [_shifted(memory[kind], distance) for distance, kind in enumerate(kinds)]
    near_keys, near_values = (torch.stack(parts, dim=3) for parts in zip(*behind, strict=True))  # [B, kv, S, fill, d]
    far = torch.matmul(queries, complete_keys[:, :, None].transpose(-2, -1))  # [B, kv, group, S, S]
    near = torch.einsum("bkgsd,bksfd->bkgsf", queries, near_keys)
    lowest = torch.finfo(far.dtype).min
    scores = torch.cat([far.masked_fill(~older, lowest), near.masked_fill(~nearest, lowest)], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(queries.dtype)
    far_weights, near_weights = weights.split([far.shape[-1], near.shape[-1]], dim=-1)
    mixed = torch.matmul(far_weights, complete_values[:, :, None])
    mixed = mixed + torch.einsum("bkgsf,bksfd->bkgsd", near_weights, near_values)
    return mixed.permute(0, 3, 1, 2, 4).flatten(2)


def _shifted(pair: tuple[Tensor, Tensor], distance: int) -> tuple[Tensor, Tensor]:
    """At each position what stood ``distance`` places before it: [B, kv_heads, S, d] → same; zeros at the start."""
    keys, values = (F.pad(tensor, (0, 0, distance, 0))[:, :, : tensor.shape[2]] for tensor in pair)
    return keys, values


def _copy_layer(layer: DraftLayer, source: Any) -> None:
    for part, names in (
        (source.self_attn, ("q_proj", "k_proj", "v_proj", "o_proj")),
        (source.mlp, ("gate_proj", "up_proj", "down_proj")),
    ):
        for name in names:
            _copy_where_it_fits(getattr(layer, name).weight, getattr(getattr(part, name, None), "weight", None))
    before_attention = getattr(source, "input_layernorm", None)
    before_mlp = getattr(source, "pre_feedforward_layernorm", None)
    if before_mlp is None and before_attention is not None:  # else its layers norm what comes out, not what goes in
        before_mlp = source.post_attention_layernorm
    for norm, part in (
        (layer.query_norm, before_attention),
        (layer.row_norm, before_attention),
        (layer.mlp_norm, before_mlp),
    ):
        _copy_where_it_fits(norm.weight, _scale(part))


def _scale(norm: Any) -> Tensor | None:
    """What an RMS norm multiplies by; some families keep it as the difference to 1."""
    weight = getattr(norm, "weight", None)
    return None if weight is None else norm(torch.ones_like(weight))


def _copy_where_it_fits(own: Tensor, found: Any) -> None:
    if isinstance(found, Tensor) and found.shape == own.shape:
        own.copy_(found)
