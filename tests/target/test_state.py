"""What a stage remembers: attention sees the right keys, rolling back any number of tokens is exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_lib.target import Pipeline
from spd_lib.target.state import CHUNK_TOKENS, AttentionMemory, StageState

from ..families import FAMILIES, VOCAB, WINDOW, WINDOWED, num_layers, own_logits, prompt_of, tiny

TOLERANCE = 1e-4  # of the largest logit


def rows(start: int, count: int) -> torch.Tensor:
    """Keys that name their position: [1, 2, count, 4]."""
    return torch.arange(start, start + count).float()[None, None, :, None].expand(1, 2, count, 4)


def positions(seen: torch.Tensor) -> list[int]:
    return [int(value) for value in seen[0, 0, :, 0]]


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """max |found − expected| ÷ max |expected|."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


def test_a_single_token_sees_its_window() -> None:
    """A token sees itself and ``window`` − 1 before it; a block gets everything and needs a mask."""
    memory = AttentionMemory(window=4)
    keys, values = memory.write(0, rows(0, 10), -rows(0, 10))
    assert positions(keys) == list(range(10))
    keys, values = memory.write(10, rows(10, 1), -rows(10, 1))
    assert positions(keys) == [7, 8, 9, 10]
    assert positions(values) == [-7, -8, -9, -10]


def test_without_a_window_a_token_sees_everything() -> None:
    memory = AttentionMemory(window=None)
    for position in range(5):
        keys, _ = memory.write(position, rows(position, 1), rows(position, 1))
        assert positions(keys) == list(range(position + 1))


def test_a_window_reaches_back_after_a_rollback() -> None:
    """Writing again at an earlier place sees the tokens before that place, however far writing had gone."""
    memory = AttentionMemory(window=3)
    for position in range(9):
        memory.write(position, rows(position, 1), rows(position, 1))
    keys, _ = memory.write(4, rows(4, 1) + 100, rows(4, 1))
    assert positions(keys) == [2, 3, 104]


@pytest.mark.parametrize("first", [1, CHUNK_TOKENS - 1, CHUNK_TOKENS, CHUNK_TOKENS + 1, 5 * CHUNK_TOKENS])
def test_growing_keeps_what_was_written(first: int) -> None:
    """Across several growths of the buffers, all keys stay in place."""
    memory = AttentionMemory(window=None)
    memory.write(0, rows(0, first), rows(0, first))
    for start in range(first, first + 3 * CHUNK_TOKENS, 100):
        keys, values = memory.write(start, rows(start, 100), rows(start, 100))
    assert positions(keys) == positions(values) == list(range(start + 100))


def test_an_uncounted_write_leaves_no_trace() -> None:
    """Until the length is moved on, the same place is written again."""
    state = StageState({0: None})
    state.update(rows(0, 1), rows(0, 1), 0)
    keys, _ = state.update(rows(7, 1), rows(7, 1), 0)
    assert positions(keys) == [7]
    state.advance(1)
    keys, _ = state.update(rows(8, 1), rows(8, 1), 0)
    assert positions(keys) == [7, 8]


@pytest.mark.parametrize("to", [-1, 4])
def test_rollback_only_shortens(to: int) -> None:
    state = StageState({0: None})
    state.advance(3)
    with pytest.raises(ValueError, match="cannot roll back"):
        state.rollback(to)
    state.rollback(3)
    assert state.length == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_rollback_then_decoding_is_a_fresh_prefill(family: str) -> None:
    """Any walk of steps and rollbacks leaves what a fresh prefill of the same ids leaves, beyond the window too.

    Compared with transformers' own forward of the whole text after every move.
    """
    model = tiny(family)
    moves = st.lists(st.tuples(st.integers(0, 30), st.integers(0, VOCAB - 1)), min_size=1, max_size=6)

    @settings(max_examples=25, derandomize=True, deadline=None, database=None)
    @given(num_stages=st.integers(1, num_layers(family)), length=st.integers(1, 4 * WINDOW), moves=moves)
    def walk(num_stages: int, length: int, moves: list[tuple[int, int]]) -> None:
        ids, pipeline = prompt_of(length, 3), Pipeline(model, num_stages)
        assert distance(pipeline.prefill(ids), own_logits(model, ids)) < TOLERANCE
        for back, token_id in moves:
            keep = max(1, len(ids) - back)
            pipeline.rollback(keep)
            ids = [*ids[:keep], token_id]
            assert distance(pipeline.step(token_id), own_logits(model, ids)) < TOLERANCE

    walk()


@pytest.mark.parametrize("family", WINDOWED)
def test_the_window_matters_in_these_models(family: str) -> None:
    """A token that no layer stack can reach changes nothing, one within reach does: the windows are really in use."""
    model = tiny(family)
    full = any(Pipeline(model, 1).decoder.window(layer) is None for layer in range(num_layers(family)))
    reach = num_layers(family) * (WINDOW - 1)
    ids = prompt_of(reach + 4, 1)
    other = [(ids[0] + 1) % VOCAB, *ids[1:]]
    same = torch.equal(Pipeline(model, 2).prefill(ids), Pipeline(model, 2).prefill(other))
    assert same is not full


def test_stages_of_one_pipeline_forget_apart() -> None:
    """Rolling back takes each stage to the same length, from wherever it stood."""
    pipeline = Pipeline(tiny("llama"), 3)
    pipeline.prefill(prompt_of(5))
    for stage, ahead in zip(pipeline.stages, (3, 2, 0), strict=True):
        stage.state.advance(ahead)
    pipeline.rollback(5)
    assert [stage.state.length for stage in pipeline.stages] == [5, 5, 5]
