"""What the engine costs, with slack for a busy machine; ``make bench`` has the exact figure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from spd_lib.core.trace import TraceBuilder
from spd_lib.target.load import encode_chat, load

from ..families import prompt_of, reference, tiny
from . import cycle

SLACK = 1.5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Timed on one thread, whatever the process was started with."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_full_pipe_cycle_costs_little_more_than_a_plain_step() -> None:
    """SmolLM2, n = 5: the best of two short rounds."""
    target = load("smollm2", device="cpu", dtype="float32")
    rounds = cycle.measure(target.model, encode_chat(target, cycle.PROMPT)[0].tolist(), cycles=30, rounds=2)
    assert min(row["cycles"] for row in rounds) >= 30
    assert min(row["ratio"] for row in rounds) <= SLACK


def test_only_full_cycles_are_timed_and_all_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny model: as many as promised; an engine that dawdles after its verdict is found out."""
    model, prompt = tiny("llama"), prompt_of(6)
    text = reference(model, prompt, 30)
    plain = cycle.one_round(model, prompt, text, num_stages=5)
    # The first draft for a full pipe comes in cycle n; the last draft of the budget closes the last timed cycle.
    assert plain["cycles"] == len(text) - 1 - 5
    whole = TraceBuilder.cycle

    def dawdling(self, *arguments, **keywords) -> None:
        torch.zeros(()).item()
        started = cycle.perf_counter()
        while cycle.perf_counter() - started < 0.02:
            pass
        whole(self, *arguments, **keywords)

    monkeypatch.setattr(TraceBuilder, "cycle", dawdling)
    assert cycle.one_round(model, prompt, text, num_stages=5)["cycle_ms"] > 20


def test_table_names_the_criterion() -> None:
    """Met or missed, in words."""
    row = dict.fromkeys(("cycle_ms", "plain_step_ms", "transformers_step_ms", "ratio_to_transformers"), 1.0)
    result = {"target": "t", "dtype": "float32", "num_stages": 5, "rounds": [row | {"cycles": 200, "ratio": 1.1}]}
    assert "1.100 (criterion ≤ 1.15: met)" in cycle.table(result | {"ratio": 1.1})
    assert "MISSED" in cycle.table(result | {"ratio": 1.2})
