"""Stages move tokens: one step each a cycle, and together they compute what the model computes."""

from __future__ import annotations

import pytest
import torch

from spd_lib.core.plan import Plan
from spd_lib.core.trace import Stopwatch
from spd_lib.target import Flight, InFlight, Pipeline

from ..families import FAMILIES, fresh, num_layers, own_logits, prompt_of, tiny

depths = [(family, n) for family in FAMILIES for n in range(1, num_layers(family) + 1)]


@pytest.mark.parametrize(("family", "num_stages"), depths)
def test_steps_compute_the_models_own_logits(family: str, num_stages: int) -> None:
    """Prefill and single steps against a full forward of the model, for every number of stages."""
    model, ids = tiny(family), prompt_of(19, 2)
    pipeline = Pipeline(model, num_stages)
    torch.testing.assert_close(pipeline.prefill(ids[:9]), own_logits(model, ids[:9]), rtol=1e-4, atol=1e-3)
    for end in range(10, 20):
        found = pipeline.step(ids[end - 1])
        torch.testing.assert_close(found, own_logits(model, ids[:end]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_in_flight_compute_what_steps_compute(family: str) -> None:
    """A full pipe of right tokens yields, token by token, bit for bit what plain steps yield."""
    model, ids, num_stages = tiny(family), prompt_of(16, 4), 3
    plain, pipeline, flight = Pipeline(model, 1), Pipeline(model, num_stages), Flight(ids[:8])
    plain.prefill(ids[:8])
    pipeline.prefill(ids[:8])
    flight.admit(InFlight(ids[8], 8, 0))
    left = []
    for cycle in range(7):
        finished = pipeline.advance(flight, Stopwatch())
        if 9 + cycle < len(ids):
            flight.admit(InFlight(ids[9 + cycle], 9 + cycle, cycle + 1))
        assert (finished is None) == (cycle < num_stages - 1)
        if finished is not None:
            left.append(finished.token.position)
            assert torch.equal(finished.logits, plain.step(finished.token.token_id))
    assert left == [8, 9, 10, 11, 12]


def test_each_stage_works_once_a_cycle() -> None:
    """The lanes of a full pipe: every stage once, the head once."""
    pipeline, flight = Pipeline(tiny("llama"), 4), Flight([1, 2])
    pipeline.prefill([1, 2])
    lanes = []
    for cycle in range(5):
        watch = Stopwatch()
        flight.admit(InFlight(cycle, 2 + cycle, cycle))
        pipeline.advance(flight, watch)
        lanes.append(sorted(span.lane for span in watch.take()))
    assert lanes[0] == ["stage 0"]
    assert lanes[2] == ["stage 0", "stage 1", "stage 2"]
    assert lanes[4] == ["head", "stage 0", "stage 1", "stage 2", "stage 3"]


def test_prefill_forgets_the_last_text() -> None:
    pipeline = Pipeline(tiny("qwen3"), 2)
    first = pipeline.prefill(prompt_of(5))
    pipeline.step(3)
    pipeline.prefill(prompt_of(11, 8))
    assert torch.equal(pipeline.prefill(prompt_of(5)), first)


def test_plans() -> None:
    """A name, layers per stage or a Plan; a last stage without layers passes tokens through to the head."""
    model, ids = tiny("llama"), prompt_of(6)
    expected = Pipeline(model, 1).prefill(ids)
    for plan in ("even", "balanced", (1, 3, 1), (4, 1, 0), Plan((0, 2, 3, 5))):
        assert torch.equal(Pipeline(model, 3, plan).prefill(ids), expected)


@pytest.mark.parametrize(
    ("num_stages", "plan", "message"),
    [
        (6, "even", "between 1 and the model's 5 layers"),
        (0, "even", "between 1 and"),
        (2, "odd", "even, balanced"),
        (2, (2, 2), "covers 4 layers"),
        (3, (2, 3), "has 2 stages"),
        (3, (0, 2, 3), "at least one layer"),
    ],
)
def test_refused_plans(num_stages: int, plan: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(tiny("llama"), num_stages, plan)  # type: ignore[arg-type]


def test_head_cost_is_the_ratio_of_the_weights() -> None:
    """97 × 32 weights of the head over those of one layer."""
    decoder = Pipeline(tiny("llama"), 1).decoder
    layer = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48 + 2 * 32
    assert decoder.head_cost == 97 * 32 / layer


def test_flight() -> None:
    """Positions follow one another; finishing, looking behind, restarting."""
    flight = Flight([5, 6])
    for position, token_id in ((2, 7), (3, 8), (4, 9)):
        assert flight.next_position == position
        flight.admit(InFlight(token_id, position, uid=position))
    with pytest.raises(ValueError, match="cannot follow"):
        flight.admit(InFlight(1, 7, uid=9))
    for depth, token in zip((2, 1, 0), flight.tokens, strict=True):
        token.depth = depth
    assert flight.fill == 3
    assert flight.standing(4) == [(4,), (3,), (2,), ()]
    oldest = flight.finish()
    assert (oldest.position, flight.behind(oldest).position) == (2, 3)
    flight.restart(InFlight(1, 3, uid=10))
    assert (flight.ids, flight.fill) == ([5, 6, 7, 1], 1)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_of_tokens(family: str, attention: str) -> None:
    """Several tokens at once, at the start of a text and behind others, see what they would see one by one."""
    model, ids = fresh(family), prompt_of(21, 6)
    model.set_attn_implementation(attention)
    for sizes in ((21,), (1, 20), (5, 2, 14), (9, 1, 4, 7)):
        pipeline, done = Pipeline(model, 2), 0
        for size in sizes:
            hidden = pipeline.decoder.embed(ids[done : done + size])
            for stage in pipeline.stages:
                hidden = stage.step(hidden)
            rows, done = pipeline.decoder.head(hidden), done + size
            for offset in range(size):
                own = own_logits(model, ids[: done - size + offset + 1])
                torch.testing.assert_close(rows[offset], own, rtol=1e-4, atol=1e-3)
