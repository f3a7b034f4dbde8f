"""Replay and engine agree draft by draft, and so do their Traces."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from spd_lib.core.staircase import row_kinds
from spd_lib.draft import PromptLookup
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.evaluate.replay import Judged, lookup_judged, trace_of, walk
from spd_lib.evaluate.texts import Sampling, Text
from spd_lib.target.layers import Decoder
from tests.families import VOCAB

from .learnt import (
    CPU,
    GREEDY,
    NEW_TOKENS,
    SAMPLED,
    STAGES,
    engine,
    fills,
    half_right,
    model,
    plan,
    replay,
    texts,
    verdicts,
    write,
)

SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "gumbel"])


@SAMPLINGS
@pytest.mark.parametrize("num_stages", STAGES)
def test_replay_equals_the_engine(num_stages: int, sampling: Sampling) -> None:
    """Flags and fills in order, and the Trace that they make."""
    seen: dict[int, list[bool]] = {}
    for text in texts(sampling):
        trace = engine(text, num_stages, sampling.sampler(text.row, VOCAB, CPU))
        assert tuple(trace.token_ids) == text.new_ids
        judged = list(replay(text, sampling).judged(plan(num_stages)))
        assert [each.accepted for each in judged] == verdicts(trace)
        assert [each.index for each in judged] == list(range(1, len(text.new_ids)))
        assert trace_of(text, judged, num_stages) == trace
        # Beyond the budget nothing is drafted, so the last drafts may be judged while fewer are in flight; what counts
        # is how many were there when they were made.
        assert [each.fill for each in judged] == fills(trace)
        for each in judged:
            seen.setdefault(each.fill, []).append(each.accepted)
    assert set(seen) == set(range(1, num_stages + 1))
    flags = [flag for at_fill in seen.values() for flag in at_fill]
    assert 0.3 < sum(flags) / len(flags) < 0.9
    assert all(0 < sum(seen[fill]) < len(seen[fill]) for fill in seen if len(seen[fill]) > 10)


@pytest.mark.parametrize("sampling", [Sampling(0.7, 3, top_k=5), Sampling(1.3, 3, top_p=0.8)], ids=["top-k", "top-p"])
def test_the_sampling_chain_is_replayed(sampling: Sampling) -> None:
    flags: list[bool] = []
    for row in range(3):
        text = write(row, sampling)
        judged = [each.accepted for each in replay(text, sampling).judged(plan(3))]
        assert judged == verdicts(engine(text, 3, sampling.sampler(row, VOCAB, CPU)))
        flags += judged
    assert 0 < sum(flags) < len(flags)


@SAMPLINGS
@pytest.mark.parametrize("num_stages", [1, 4])
@pytest.mark.parametrize("at", [0, 1, 9, NEW_TOKENS - 1])
def test_an_end_of_sequence_ends_the_replay_too(at: int, num_stages: int, sampling: Sampling) -> None:
    """Inside the budget, with its very last token, and with the free first one."""
    eos = next((text.new_ids[at],) for text in texts(sampling) if text.new_ids[at] not in text.new_ids[:at])
    row = next(text.row for text in texts(sampling) if text.new_ids.index(eos[0]) == at if eos[0] in text.new_ids)
    text = write(row, sampling, eos)
    assert (len(text.new_ids), text.stop_reason) == (at + 1, "eos")
    trace = engine(text, num_stages, sampling.sampler(row, VOCAB, CPU), eos)
    judged = list(replay(text, sampling).judged(plan(num_stages)))
    assert trace_of(text, judged, num_stages) == trace


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_a_text_of_one_token_has_no_judged_draft(coupling: str) -> None:
    text = write(0, SAMPLED, budget=1)
    one = replay(text, SAMPLED, coupling)
    assert list(one.judged(plan(4))) == []
    assert one.agreement(plan(4), 2) == (0, 0)
    assert trace_of(text, [], 4) == engine(text, 4, SAMPLED.sampler(0, VOCAB, CPU))


def test_near_ties_are_counted() -> None:
    """Every id of the drafter stands beside a twin that it likes as well: each greedy draft could fall either way."""
    module = copy.deepcopy(half_right())
    half = len(module.draft_ids) // 2
    module.head.weight[half:] = module.head.weight[:half] * (1 + 1e-7)
    text = texts(GREEDY)[0]
    assert replay(text, GREEDY, module=module).near_ties(plan(3)) == len(text.new_ids) - 1
    assert replay(text, GREEDY).near_ties(plan(3)) <= 1
    sampled = texts(SAMPLED)[0]
    assert replay(sampled, SAMPLED, module=module).near_ties(plan(3)) <= 1, "noise tells twins apart"


def test_agreement_asks_everywhere() -> None:
    """By fill, against the draft of every counted position where so many generated tokens can be in flight."""
    module, anchors = half_right(), half_right().config.anchors
    text = replace(texts(GREEDY)[1], new_ids=texts(GREEDY)[1].new_ids[:14] * 2)
    assert text.counted == 14
    ids = [*text.prompt_ids, *text.new_ids]
    states = Decoder(model()).read(torch.tensor([ids]), anchors)
    for num_stages in (2, 8):
        for fill in range(1, num_stages + 1):
            logits = module(states, row_kinds(plan(num_stages), anchors, fill))
            drafts = module.draft_ids[logits.argmax(dim=-1)].tolist()
            first = len(text.prompt_ids) + fill  # the first position with `fill` generated tokens before it
            last = len(text.prompt_ids) + text.counted
            right = [drafts[position - 1] == ids[position] for position in range(first, last)]
            assert replay(text, GREEDY).agreement(plan(num_stages), fill) == (sum(right), len(right))


def test_walk_fills_and_flushes() -> None:
    said = iter([True, True, True, False, True, False, True])
    judged = list(walk(8, 3, lambda index, fill: next(said)))
    assert [each.fill for each in judged] == [1, 2, 3, 3, 1, 2, 1]
    assert judged[3] == Judged(4, 3, False)


@pytest.mark.parametrize("num_stages", [1, 4])
@SAMPLINGS
def test_prompt_lookup_is_replayed_too(sampling: Sampling, num_stages: int) -> None:
    accepted = 0
    for row in range(4):
        prompt = (7, 8, 9) * 2 + texts(sampling)[row].new_ids[:6]
        text = Text("q", "all", row, prompt, (), NEW_TOKENS, "budget")
        trace = engine(text, num_stages, sampling.sampler(row, VOCAB, CPU), drafter=PromptLookup())
        text = Text("q", "all", row, prompt, tuple(trace.token_ids), NEW_TOKENS, "budget")
        assert [each.accepted for each in lookup_judged(text, num_stages)] == verdicts(trace)
        accepted += sum(verdicts(trace))
    assert accepted > 0 or sampling is SAMPLED


def test_the_drafter_in_the_engine_is_the_one_that_is_replayed() -> None:
    """The tests above would prove little if the engine's drafter were never asked on a full pipe."""
    asked: list[int] = []

    class Counting(PipelineDrafter):
        def propose(self, flight):
            asked.append(flight.fill)
            return super().propose(flight)

    text = texts(SAMPLED)[0]
    engine(text, 4, SAMPLED.sampler(0, VOCAB, CPU), drafter=Counting(half_right()))
    assert {1, 2, 3, 4} <= set(asked)
