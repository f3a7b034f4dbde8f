"""Engine and simulator write the same Trace, cell by cell, for the same flags; neither knows of the other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from spd_lib.core.perfetto import to_perfetto
from spd_lib.core.simulate import simulate
from spd_lib.core.trace import Trace
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Oracle
from spd_lib.target import Pipeline

from ..families import SHAPE, VOCAB, prompt_of, reference

LAYERS, MOST_TOKENS = 12, 24


@cache
def deep() -> nn.Module:
    """A llama of twelve layers, so that pipes can be deeper than most texts are long."""
    torch.manual_seed(4)
    config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=LAYERS)
    return transformers.LlamaForCausalLM(config).eval().requires_grad_(False)


@cache
def text_after(length: int) -> list[int]:
    return reference(deep(), prompt_of(length), MOST_TOKENS)


@cache
def pipeline(num_stages: int) -> Pipeline:
    return Pipeline(deep(), num_stages)


def engine_trace(flags: list[bool], num_stages: int, budget: int, length: int, eos: tuple[int, ...]) -> Trace:
    """The engine's Trace when the drafts of tokens 2, 3, … are right as ``flags`` say."""
    wrong = {index + 1 for index, right in enumerate(flags) if not right}
    sampler = Sampler.greedy(VOCAB, torch.device("cpu"))
    drafter = Oracle(wrong_at=wrong, text=text_after(length))
    return decode(pipeline(num_stages), drafter, sampler, StopRule(length, budget, eos), prompt_of(length))


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    flags=st.lists(st.booleans() | st.just(True), min_size=MOST_TOKENS, max_size=MOST_TOKENS),
    num_stages=st.integers(1, LAYERS),
    budget=st.integers(1, MOST_TOKENS),
    length=st.integers(1, 5),
    end=st.none() | st.integers(0, MOST_TOKENS - 1),
)
@example(flags=[False] * MOST_TOKENS, num_stages=LAYERS, budget=MOST_TOKENS, length=1, end=None)
@example(flags=[True] * MOST_TOKENS, num_stages=LAYERS, budget=MOST_TOKENS, length=1, end=None)
@example(flags=[True] * MOST_TOKENS, num_stages=LAYERS, budget=3, length=1, end=None)
@example(flags=[True] * MOST_TOKENS, num_stages=1, budget=MOST_TOKENS, length=2, end=5)
def test_engine_and_simulator_agree(
    flags: list[bool], num_stages: int, budget: int, length: int, end: int | None
) -> None:
    """Ends by budget, and by a token declared the end of sequence, at any depth of the pipe."""
    text = text_after(length)
    eos = () if end is None else (text[end],)
    ends = [index for index, token_id in enumerate(text[:budget]) if token_id in eos]
    count = ends[0] + 1 if ends else budget
    expected = simulate(flags, num_stages, count, budget=budget, prompt_length=length)
    found = engine_trace(flags, num_stages, budget, length, eos)
    assert found.token_ids == text[:count]
    assert found == replace(expected, stop_reason="eos" if ends else "budget")


def test_the_text_wanders() -> None:
    """The comparison would be worth little on a text of one token."""
    assert min(len(set(text_after(length))) for length in range(1, 6)) >= 12


def test_measured_times_of_the_engine() -> None:
    """Each cycle has one piece per busy lane, one after the other, and all of it survives saving and exporting."""
    flags = [index not in (4, 9) for index in range(MOST_TOKENS)]
    trace = engine_trace(flags, 4, MOST_TOKENS, 3, ())
    clock = 0.0
    for cycle in trace.cycles:
        busy = {f"stage {stage}" for stage, standing in enumerate(cycle.stages) if standing}
        busy |= {"draft"} if cycle.draft is not None else set()
        busy |= {"head", "verify"} if cycle.verdicts else set()
        assert sorted(span.lane for span in cycle.spans) == sorted(busy)
        for span in cycle.spans:
            assert clock <= span.start_s < span.end_s
            clock = span.end_s
    back = Trace.from_json(trace.to_json())
    assert repr(back) == repr(trace)
    pieces = [event for event in to_perfetto(back)["traceEvents"] if event["ph"] == "X"]
    assert len(pieces) == sum(len(cycle.spans) for cycle in trace.cycles)
    assert sum(event["dur"] for event in pieces) <= clock * 1e6
