"""Replay and engine agree draft by draft, and so do their Traces."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F

from spd_lib.baselines import autoregressive
from spd_lib.core.plan import make_plan
from spd_lib.core.staircase import row_kinds
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler, make_rule, warpers
from spd_lib.decode.stopping import StopRule
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.evaluate.replay import Judged, Replay, lookup_judged, trace_of, walk
from spd_lib.evaluate.texts import Sampling, Text
from spd_lib.target.layers import Decoder
from spd_lib.target.pipeline import Pipeline
from tests.draft.modules import deep_llama, tiny_module
from tests.families import VOCAB, prompt_of

CPU = torch.device("cpu")
PROMPTS, NEW_TOKENS = range(8), 28
GREEDY, SAMPLED = Sampling(), Sampling(1.0, seed=5)


def text_of(row: int, sampling: Sampling, eos: tuple[int, ...] = ()) -> Text:
    prompt = prompt_of(4 + row, row)
    sampler = sampling.sampler(row, VOCAB, CPU)
    new_ids = autoregressive(Pipeline(deep_llama(), 1), sampler, prompt, NEW_TOKENS, eos).token_ids
    return Text(f"q{row}", "all", row, tuple(prompt), tuple(new_ids), NEW_TOKENS)


@cache
def texts(sampling: Sampling) -> list[Text]:
    return [text_of(row, sampling) for row in PROMPTS]


@cache
def half_right() -> PipelineDraftModule:
    """A small drafter that has learnt some of the texts by heart: often right, often wrong, at every fill."""
    decoder = Decoder(deep_llama())
    module = tiny_module(decoder, anchors=(0, 2, 5, 7, 11, 16), draft_vocab_size=VOCAB)
    module.draft_ids.copy_(torch.arange(VOCAB))
    optimizer = torch.optim.Adam(module.parameters(), lr=5e-3)
    plans = [make_plan("even", 16, n, 0.0) for n in (1, 2, 4, 8)]
    for step in range(160):
        text = (texts(GREEDY) + texts(SAMPLED))[step % 16]
        ids = torch.tensor([[*text.prompt_ids, *text.new_ids]])
        plan = plans[step % 4]
        kinds = row_kinds(plan, module.config.anchors, 1 + step % plan.num_stages)
        logits = module(decoder.read(ids, module.config.anchors), kinds)[:-1]
        F.cross_entropy(logits, ids[0, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return module.requires_grad_(False)


def engine(text: Text, num_stages: int, sampler: Sampler, eos: tuple[int, ...] = ()):
    pipeline = Pipeline(deep_llama(), num_stages)
    stop = StopRule(len(text.prompt_ids), text.budget, eos)
    return decode(pipeline, PipelineDrafter(half_right()), sampler, stop, list(text.prompt_ids))


def verdicts(trace) -> list[bool]:
    return [verdict.accepted for cycle in trace.cycles for verdict in cycle.verdicts]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "gumbel"])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, 8])
def test_replay_equals_the_engine(num_stages: int, sampling: Sampling) -> None:
    fills, flags, near = set(), [], 0
    decoder, plan = Decoder(deep_llama()), make_plan("even", 16, num_stages, 0.0)
    for text in texts(sampling):
        trace = engine(text, num_stages, sampling.sampler(text.row, VOCAB, CPU))
        assert tuple(trace.token_ids) == text.new_ids
        replay = Replay(decoder, half_right(), text, sampling)
        judged = list(replay.judged(plan))
        near += replay.near_ties(plan)
        fills |= {each.fill for each in judged}
        flags += [each.accepted for each in judged]
        assert [each.accepted for each in judged] == verdicts(trace)
        assert trace_of(text, judged, num_stages) == trace
    assert near == 0
    assert fills >= set(range(1, min(num_stages, 6) + 1))
    assert 0.2 < sum(flags) / len(flags) < 0.9


def test_an_end_of_sequence_ends_the_replay_too() -> None:
    eos = (texts(GREEDY)[0].new_ids[9],)
    text = text_of(0, GREEDY, eos)
    assert len(text.new_ids) <= 10
    trace = engine(text, 4, GREEDY.sampler(0, VOCAB, CPU), eos)
    judged = list(Replay(Decoder(deep_llama()), half_right(), text, GREEDY).judged(make_plan("even", 16, 4, 0.0)))
    assert trace_of(text, judged, 4) == trace


def test_rejection_by_frequency() -> None:
    """Mean acceptance of many engine runs against the replay's chances, for the first judged draft of a text."""
    text, runs = texts(SAMPLED)[0], 120
    decoder, plan = Decoder(deep_llama()), make_plan("even", 16, 3, 0.0)
    first = [make_rule("rejection", seed=seed, row=0, vocab_size=VOCAB, device=CPU) for seed in range(runs)]
    accepted = 0
    for rule in first:
        sampler = Sampler(rule, warpers(1.0, None, None), vocab_size=VOCAB, device=CPU)
        short = Text("q", "all", 0, text.prompt_ids, (), 2)
        accepted += sum(verdicts(engine(short, 3, sampler)))
    expected = 0.0
    for seed in range(runs):
        sampling = Sampling(1.0, seed=10_000 + seed)
        new_ids = autoregressive(
            Pipeline(deep_llama(), 1), sampling.sampler(0, VOCAB, CPU), list(text.prompt_ids), 2
        ).token_ids
        sampled = Text("q", "all", 0, text.prompt_ids, tuple(new_ids), 2)
        replay = Replay(decoder, half_right(), sampled, sampling, "rejection")
        expected += float(replay.drafts(row_kinds(plan, half_right().config.anchors, 1)).chance[0])
    assert abs(accepted - expected) < 4 * (runs / 2) ** 0.5


def test_walk_fills_and_flushes() -> None:
    said = iter([True, True, True, False, True, False, True])
    judged = list(walk(8, 3, lambda index, fill: next(said)))
    assert [each.fill for each in judged] == [1, 2, 3, 3, 1, 2, 1]
    assert judged[3] == Judged(4, 3, False)


def test_the_headline_counts_up_to_the_first_repeat() -> None:
    once = tuple(range(20))
    assert Text("q", "all", 0, (1,), once, 128).counted == 20
    assert Text("q", "all", 0, (1,), once + once[3:15], 128).counted == 20
    assert Text("q", "all", 0, (1,), once + once[3:14], 128).counted == 31
    assert Text("q", "all", 0, (1,), (7,) * 13, 128).counted == 1


def test_prompt_lookup_is_replayed_too() -> None:
    from spd_lib.draft import PromptLookup

    text = texts(GREEDY)[1]
    trace = decode(
        Pipeline(deep_llama(), 4),
        PromptLookup(),
        GREEDY.sampler(0, VOCAB, CPU),
        StopRule(len(text.prompt_ids), text.budget),
        list(text.prompt_ids),
    )
    assert [each.accepted for each in lookup_judged(text, 4)] == verdicts(trace)
