"""Greedy decoding on SmolLM2: token for token the text of a hand-written loop."""

from __future__ import annotations

import pytest

from spd_lib.core import metrics
from spd_lib.core.simulate import simulate
from spd_lib.core.trace import Trace
from spd_lib.draft import Oracle
from spd_lib.target.load import Target, load

from ..families import reference
from . import real
from .cases import flags_of

NEW_TOKENS = 24
PROMPTS = range(4)


@pytest.fixture(scope="module")
def target() -> Target:
    return load("smollm2", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def texts(target: Target) -> list[list[int]]:
    """The model's own texts."""
    return [reference(target.model, real.prompt_ids(target, index), NEW_TOKENS) for index in PROMPTS]


def checked(target: Target, text: list[int], index: int, drafter, num_stages: int) -> Trace:
    """Decodes prompt ``index`` and compares text, cycle count and Trace."""
    prompt = real.prompt_ids(target, index)
    trace = real.spd(target.model, prompt, drafter, num_stages, NEW_TOKENS)
    assert trace.token_ids == text
    formula = metrics.expected_cycles(num_stages, NEW_TOKENS, metrics.num_refills(trace))
    assert metrics.num_cycles(trace) == formula
    assert trace == simulate(flags_of(trace), num_stages, NEW_TOKENS, prompt_length=len(prompt))
    return trace


def test_the_texts_are_worth_comparing(texts: list[list[int]]) -> None:
    """Four different texts, none of them one token over and over."""
    assert len({tuple(text) for text in texts}) == len(texts)
    assert min(len(set(text)) for text in texts) >= 8


@pytest.mark.parametrize("num_stages", [1, 3, 4])
@pytest.mark.parametrize("drafter", real.DRAFTERS)
def test_every_drafter(target: Target, texts: list[list[int]], drafter: str, num_stages: int) -> None:
    """The text is the model's own; what is accepted is what the drafter deserves."""
    rates = []
    for index in PROMPTS:
        trace = checked(target, texts[index], index, real.DRAFTERS[drafter](texts[index]), num_stages)
        rates.append(metrics.acceptance_rate(trace))
    if drafter in ("oracle 0", "oracle 1"):
        assert set(rates) == {1.0 if drafter == "oracle 0" else 0.0}
    elif drafter == "oracle .3":
        assert 0.5 < sum(rates) / len(rates) < 0.9
    elif drafter == "random":
        assert max(rates) < 0.1
    else:
        assert 0 < sum(rates) / len(rates) < 1


@pytest.mark.parametrize("num_stages", [8, 30])
def test_deep_pipes(target: Target, texts: list[list[int]], num_stages: int) -> None:
    """Eight stages, and one for each layer, with a draft in three wrong."""
    for index in PROMPTS:
        trace = checked(target, texts[index], index, Oracle(0.3, text=texts[index]), num_stages)
        assert 0 < metrics.acceptance_rate(trace) < 1


def test_oracle_finds_the_text_itself(target: Target, texts: list[list[int]]) -> None:
    """Without being told the text, the oracle reads it off the target and is always right."""
    trace = checked(target, texts[0], 0, Oracle(), 4)
    assert metrics.acceptance_rate(trace) == 1
