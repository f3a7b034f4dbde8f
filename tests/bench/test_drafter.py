"""The bench of the drafter's cost measures what it says, on a tiny model."""

from __future__ import annotations

from spd_lib.target import Decoder, Pipeline
from tests.bench import drafter
from tests.draft.modules import deep_llama, tiny_module
from tests.families import prompt_of


def test_the_drafter_works_beside_a_full_pipe_and_its_rows_do_not_grow() -> None:
    decoder = Decoder(deep_llama())
    module = tiny_module(decoder, window=16)
    sizes = set()
    for length in (16, 64):
        trace, size = drafter.run(Pipeline(decoder.model, 4), module, prompt_of(length), 20)
        sizes.add(size)
        assert all(verdict.accepted for cycle in trace.cycles for verdict in cycle.verdicts)
        assert {"draft", "stage 0", "stage 3", "head"} <= drafter.lanes(trace).keys()
    assert len(sizes) == 1


def test_spread_is_relative_to_the_smallest() -> None:
    assert drafter.spread([2.0, 2.0]) == 0
    assert abs(drafter.spread([2.0, 2.2]) - 0.1) < 1e-9
