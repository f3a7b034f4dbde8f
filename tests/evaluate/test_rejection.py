"""Rejection replays in law: given the text, a token was an accepted draft with probability min(1, Q(x)/P(x))."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch

from spd_lib.core.staircase import row_kinds
from spd_lib.decode.sampling import Sampler, make_rule, warpers
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.evaluate.replay import Drafts, Replay
from spd_lib.evaluate.texts import Sampling, Text
from spd_lib.target.layers import Decoder
from tests.families import VOCAB, own_logits

from .learnt import CPU, SAMPLED, engine, fills, half_right, model, plan, replay, texts, verdicts

RUNS, NUM_STAGES = 24, 3
Outcome = tuple[int, float, bool]  # fill, chance by replay, accepted by the engine


@cache
def unsure() -> PipelineDraftModule:
    """A drafter that seldom puts all on one token, so that little is certain."""
    module = copy.deepcopy(half_right())
    module.head.weight *= 0.25
    return module


def kinds(fill: int, num_stages: int = NUM_STAGES) -> tuple[int, ...]:
    return row_kinds(plan(num_stages), unsure().config.anchors, fill)


def rejected(text: Text, sampling: Sampling = SAMPLED) -> Replay:
    return replay(text, sampling, "rejection", unsure())


@cache
def outcomes() -> list[Outcome]:
    """Many engine runs under rejection, each with the chances that a replay of its very text gives."""
    found: list[Outcome] = []
    for seed in range(RUNS):
        asked = texts(SAMPLED)[seed % 8]
        rule = make_rule("rejection", seed=seed, row=0, vocab_size=VOCAB, device=CPU)
        sampler = Sampler(rule, warpers(1.0, None, None), vocab_size=VOCAB, device=CPU)
        trace = engine(asked, NUM_STAGES, sampler, drafter=PipelineDrafter(unsure()))
        again = rejected(replace(asked, new_ids=tuple(trace.token_ids)))
        made = zip(fills(trace), verdicts(trace), strict=True)
        found += [(fill, float(again.drafts(kinds(fill)).chance[i]), flag) for i, (fill, flag) in enumerate(made)]
    return found


def z_score(some: list[Outcome]) -> float:
    """Accepted minus expected, in standard deviations."""
    variance = sum(chance * (1 - chance) for _, chance, _ in some)
    return sum(flag - chance for _, chance, flag in some) / variance**0.5


@pytest.mark.parametrize("fill", [1, 2, 3])
def test_the_engine_accepts_as_often_as_the_replay_expects(fill: int) -> None:
    some = [each for each in outcomes() if each[0] == fill]
    assert len(some) > 60 and abs(z_score(some)) < 4


def test_chances_are_right_one_by_one() -> None:
    """χ² over drafts of similar chance; what is certain is certain."""
    bins = [[each for each in outcomes() if low <= each[1] < low + 0.2 and each[1] > 0] for low in (0, 0.2, 0.4, 0.6)]
    assert min(map(len, bins)) > 20
    assert sum(z_score(some) ** 2 for some in bins) < 23.5  # p = 1e-4 at four degrees of freedom
    assert all(flag for _, chance, flag in outcomes() if chance == 1)
    assert not any(flag for _, chance, flag in outcomes() if chance == 0)
    assert {0.0, 1.0} <= {chance for _, chance, _ in outcomes()}


@pytest.mark.parametrize("sampling", [SAMPLED, Sampling(0.8, 5, top_k=30)], ids=["plain", "top-k"])
def test_the_mean_chance_is_the_overlap(sampling: Sampling) -> None:
    """Σ_x P(x) · min(1, Q(x)/P(x)) = Σ_x min(P, Q), with P from the model's own forward, over every token x."""
    asked = texts(SAMPLED)[2]
    ids = [*asked.prompt_ids, asked.new_ids[0]]
    chain = warpers(sampling.temperature, sampling.top_k, None)

    def warped(logits):
        return (chain(None, logits[None])[0] if chain else logits).double().softmax(0)

    target = warped(own_logits(model(), ids))
    module = unsure()
    states = Decoder(model()).read(torch.tensor([ids]), module.config.anchors)
    proposal = target.new_zeros(VOCAB)
    proposal[module.draft_ids] = warped(module(states, kinds(1))[-1])
    mean = 0.0
    for token in range(VOCAB):
        if target[token] > 0:
            text = Text("q", "all", 0, asked.prompt_ids, (asked.new_ids[0], token), 2, "budget")
            chance = rejected(text, sampling).drafts(kinds(1)).chance
            mean += float(target[token] * chance[0])
    overlap = float(target.minimum(proposal).sum())
    assert 0.02 < overlap < 0.98
    assert mean == pytest.approx(overlap, abs=1e-6)


def test_flags_are_drawn_from_the_chances_with_fixed_dice() -> None:
    judged, expected, variance = 0, 0.0, 0.0
    for seed in range(40):
        text = texts(SAMPLED)[seed % 8]
        sampling = Sampling(1.0, seed)
        again = rejected(text, sampling)
        drawn = list(again.judged(plan(2)))
        assert drawn == list(again.judged(plan(2))) == list(rejected(text, sampling).judged(plan(2)))
        for each in drawn:
            chance = float(again.drafts(kinds(each.fill, 2)).chance[each.index - 1])
            judged += each.accepted
            expected += chance
            variance += chance * (1 - chance)
    assert abs(judged - expected) < 4 * variance**0.5


def test_other_seeds_questions_and_plans_have_other_dice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With even chances everywhere the flags show the dice alone."""
    text = texts(SAMPLED)[0]
    fair = torch.full((len(text.new_ids) - 1,), 0.5, dtype=torch.float64)
    monkeypatch.setattr(Replay, "drafts", lambda self, kinds: Drafts(fair, fair > 1))
    other = replace(text, question_id="another")
    flags = [
        tuple(each.accepted for each in rejected(asked, Sampling(1.0, seed)).judged(plan(num_stages)))
        for asked, seed, num_stages in ((text, 0, 1), (text, 1, 1), (other, 0, 1), (text, 0, 2), (text, 0, 1))
    ]
    assert len(set(flags)) == 4 and flags[0] == flags[4]
