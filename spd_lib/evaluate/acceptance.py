"""Acceptance = accepted ÷ judged, by number of stages, fill and category, with its uncertainty."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from tqdm.auto import tqdm

from ..core.plan import make_plan
from ..draft.module import PipelineDraftModule
from ..target.layers import Decoder
from ..target.load import Target
from .replay import Judged, Replay, lookup_judged
from .texts import Sampling, Text

RESAMPLES = 2000
Counts = tuple[int, int]  # accepted, judged


def acceptance_table(
    target: Target,
    module: PipelineDraftModule,
    texts: Sequence[Text],
    stages: Sequence[int],
    sampling: Sampling,
    *,
    coupling: str = "gumbel",
    plan: str = "even",
) -> dict[str, Any]:
    """Everything about acceptance on these texts, by replay.

    The headline counts the tokens before an answer's first repeated 12-gram; "raw" counts all. Intervals are 95 %,
    resampling whole texts.
    """
    decoder = Decoder(target.model)
    module.to(decoder.device, decoder.dtype)
    plans = {n: make_plan(plan, decoder.num_layers, n, decoder.head_cost) for n in stages}
    judged: dict[int, list[list[Judged]]] = defaultdict(list)
    lookup: list[list[Judged]] = []
    near: dict[int, int] = defaultdict(int)
    agreed: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for text in tqdm(texts, desc="replaying", unit="text"):
        replay = Replay(decoder, module, text, sampling, coupling)
        lookup.append(list(lookup_judged(text, 4)))
        for n, cut in plans.items():
            judged[n].append(list(replay.judged(cut)))
            near[n] += replay.near_ties(cut)
            for fill in range(1, n + 1):
                agreed[n, fill].append(replay.agreement(cut, fill))
    counted = [text.counted for text in texts]
    rows = [
        _row(n, texts, judged[n], counted)
        | {
            "near_ties": near[n],
            "agreement": {str(fill): _share(agreed[n, fill]) for fill in range(1, n + 1)},
        }
        for n in stages
    ]
    return {
        "texts": len(texts),
        "new_tokens": sum(len(text.new_ids) for text in texts),
        "counted_tokens": sum(counted),
        "prompt_lookup": _figures(texts, lookup, counted),
        "ceiling": _ceiling(module, texts, counted),
        "stages": rows,
    }


def _row(n: int, texts: Sequence[Text], judged: Sequence[Sequence[Judged]], counted: Sequence[int]) -> dict[str, Any]:
    by_fill = {}
    for fill in range(1, n + 1):
        accepted, made = _count(judged, counted, lambda each, fill=fill: each.fill == fill)  # type: ignore[misc]
        by_fill[str(fill)] = {"judged": made, "acceptance": accepted / made if made else None}
    return {"n": n} | _figures(texts, judged, counted) | {"by_fill": by_fill}


def _figures(texts: Sequence[Text], judged: Sequence[Sequence[Judged]], counted: Sequence[int]) -> dict[str, Any]:
    """Headline, interval, raw number and categories."""
    each = [_count([row], [limit]) for row, limit in zip(judged, counted, strict=True)]
    raw = _count(judged, [len(text.new_ids) for text in texts])
    categories: dict[str, list[Counts]] = defaultdict(list)
    for text, counts in zip(texts, each, strict=True):
        categories[text.category].append(counts)
    return {
        "acceptance": _share(each),
        "interval": interval(each),
        "judged": sum(made for _, made in each),
        "raw": _share([raw]),
        "by_category": {name: _share(counts) for name, counts in categories.items()},
    }


def _count(
    judged: Iterable[Sequence[Judged]], limits: Iterable[int], keep: Callable[[Judged], bool] = lambda each: True
) -> Counts:
    found = [
        each for row, limit in zip(judged, limits, strict=True) for each in row if each.index < limit and keep(each)
    ]
    return sum(each.accepted for each in found), len(found)


def _share(counts: Iterable[tuple[float, int]]) -> float | None:
    pairs = list(counts)
    made = sum(total for _, total in pairs)
    return sum(accepted for accepted, _ in pairs) / made if made else None


def interval(counts: Sequence[Counts], level: float = 0.95, seed: int = 0) -> tuple[float, float] | None:
    """Bootstrap interval of the pooled share, resampling texts; ``None`` if nothing was judged."""
    if not any(made for _, made in counts):
        return None
    dice = random.Random(seed)
    found: list[float] = []
    while len(found) < RESAMPLES:
        share = _share(dice.choices(counts, k=len(counts)))
        if share is not None:
            found.append(share)
    found.sort()
    skip = int((1 - level) / 2 * RESAMPLES)
    return found[skip], found[-1 - skip]


def _ceiling(module: PipelineDraftModule, texts: Sequence[Text], counted: Sequence[int]) -> float | None:
    """Share of the judged tokens that the module can draft at all."""
    known = set(module.draft_ids.tolist())
    tokens = [token for text, limit in zip(texts, counted, strict=True) for token in text.new_ids[1:limit]]
    return sum(token in known for token in tokens) / len(tokens) if tokens else None


def weights_digest(module: PipelineDraftModule) -> str:
    """Names the weights: sixteen hex digits of their sha256 in bfloat16."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        flat = tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        digest.update(name.encode() + flat.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
