"""Acceptance = accepted ÷ judged, by number of stages, fill and category, with its uncertainty."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tqdm.auto import tqdm

from ..core.plan import Plan, make_plan
from ..draft.module import PipelineDraftModule
from ..draft.pipeline_drafter import PipelineDrafter
from ..target.layers import Decoder
from ..target.load import Target
from ..target.pipeline import Pipeline
from .replay import Judged, Replay, lookup_judged
from .texts import Sampling, Text

RESAMPLES, BOOTSTRAP_SEED = 2000, 0
Counts = tuple[float, int]  # accepted, judged


@dataclass
class _Seen:
    """What the replay found for one plan, an entry a text. ``agreed``: by fill."""

    judged: list[list[Judged]] = field(default_factory=list)
    agreed: dict[int, list[Counts]] = field(default_factory=lambda: defaultdict(list))
    near_ties: int = 0

    def add(self, replay: Replay, plan: Plan) -> None:
        """Takes in one more text."""
        self.judged.append(list(replay.judged(plan)))
        self.near_ties += replay.near_ties(plan)
        for fill in range(1, plan.num_stages + 1):
            self.agreed[fill].append(replay.agreement(plan, fill))


def plans_for(decoder: Decoder, stages: Sequence[int], plan: str) -> list[Plan]:
    """A plan for each n. Raises ``ValueError`` for an n that the model cannot be cut into."""
    return [make_plan(plan, decoder.num_layers, n, decoder.head_cost) for n in stages]


def fit(module: PipelineDraftModule, target: Target) -> PipelineDraftModule:
    """The module on the target's device, in its dtype. Raises ``ValueError`` if it belongs to another target."""
    drafter, pipeline = PipelineDrafter(module), Pipeline(target.model, 1)
    pipeline.prefill([0], drafter.anchors)
    drafter.begin(pipeline, [0])  # the drafter at work is the one who knows what it needs
    return drafter.module


def looking_back(module: PipelineDraftModule, window: int) -> PipelineDraftModule:
    """The same weights with another window, be it one that they were not trained for."""
    other = copy(module)
    other.config = replace(module.config, window=window)
    return other


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

    The headline counts the tokens before an answer's first repeated 12-gram; "raw" and "near_ties" count all. Intervals
    are 95 %, resampling whole texts. "agreement" is another number: the share of right drafts by fill wherever so many
    tokens can be in flight, judged in a run or not.
    """
    module = fit(module, target)
    decoder = Decoder(target.model)
    plans = plans_for(decoder, stages, plan)
    seen = [_Seen() for _ in plans]
    with tqdm(texts, desc="replaying", unit="text") as bar:
        for text in bar:
            replay = Replay(decoder, module, text, sampling, coupling)
            for each, cut in zip(seen, plans, strict=True):
                each.add(replay, cut)
    return {
        "texts": len(texts),
        "new_tokens": sum(len(text.new_ids) for text in texts),
        "counted_tokens": sum(text.counted for text in texts),
        "prompt_lookup": _figures(texts, [list(lookup_judged(text, 1)) for text in texts]),
        "ceiling": _ceiling(module, texts),
        "stages": [_row(cut, texts, each) for cut, each in zip(plans, seen, strict=True)],
    }


def _row(plan: Plan, texts: Sequence[Text], seen: _Seen) -> dict[str, Any]:
    fills = range(1, plan.num_stages + 1)
    counted = _counted(texts, seen.judged)
    at_fill = {fill: [[each for each in row if each.fill == fill] for row in counted] for fill in fills}
    return {
        "n": plan.num_stages,
        **_figures(texts, seen.judged),
        "by_fill": {str(fill): estimate([_counts(row) for row in rows]) for fill, rows in at_fill.items()},
        "near_ties": seen.near_ties,
        "agreement": {str(fill): _share(seen.agreed[fill]) for fill in fills},
    }


def _figures(texts: Sequence[Text], judged: Sequence[Sequence[Judged]]) -> dict[str, Any]:
    """Headline, raw number and categories."""
    categories: dict[str, list[Counts]] = defaultdict(list)
    for text, row in zip(texts, _counted(texts, judged), strict=True):
        categories[text.category].append(_counts(row))
    return {
        **estimate([counts for group in categories.values() for counts in group]),
        "raw": _share([_counts(row) for row in judged]),
        "by_category": {name: estimate(counts) for name, counts in categories.items()},
    }


def _counted(texts: Sequence[Text], judged: Sequence[Sequence[Judged]]) -> list[list[Judged]]:
    """The judged drafts that the headline counts."""
    return [[each for each in row if each.index < text.counted] for text, row in zip(texts, judged, strict=True)]


def _counts(judged: Iterable[Judged]) -> Counts:
    flags = [each.accepted for each in judged]
    return sum(flags), len(flags)


def _share(counts: Iterable[Counts]) -> float | None:
    pairs = list(counts)
    made = sum(total for _, total in pairs)
    return sum(accepted for accepted, _ in pairs) / made if made else None


def estimate(counts: Sequence[Counts]) -> dict[str, Any]:
    """The pooled share of texts with their (accepted, judged), its 95 % interval, and how many drafts it stands on."""
    return {"acceptance": _share(counts), "interval": interval(counts), "judged": sum(made for _, made in counts)}


def interval(counts: Sequence[Counts], level: float = 0.95, seed: int = BOOTSTRAP_SEED) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the pooled share, resampling texts; ``None`` if nothing was judged."""
    if not any(made for _, made in counts):
        return None
    dice = torch.Generator("cpu").manual_seed(seed)
    chosen = torch.randint(len(counts), (RESAMPLES, len(counts)), generator=dice, device="cpu")
    accepted, made = torch.tensor(counts, dtype=torch.float64, device="cpu")[chosen].sum(dim=1).unbind(dim=1)
    shares = (accepted / made)[made > 0].sort().values
    skip = int((1 - level) / 2 * len(shares))
    return float(shares[skip]), float(shares[-1 - skip])


def _ceiling(module: PipelineDraftModule, texts: Sequence[Text]) -> float | None:
    """Share of the judged tokens that the module can draft at all."""
    known = set(module.draft_ids.tolist())
    tokens = [token for text in texts for token in text.new_ids[1 : text.counted]]
    return sum(token in known for token in tokens) / len(tokens) if tokens else None
