"""One full-pipe cycle against one step of plain decoding, ``make bench``.

In a full pipe every stage works on one token each cycle, so a cycle computes as much as a plain step: the same layers
and the same head. Run one after the other, on one thread, the two must take about as long; what a cycle takes longer is
what the engine costs. The cycle is timed whole: draft, stages, head, verdict, commit, Trace.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Oracle, Proposal
from spd_lib.target import Flight, Pipeline
from spd_lib.target.load import encode_chat, load

from ..families import reference
from ..results import provenance, save

NUM_STAGES = 5
CYCLES = 200
ROUNDS = 3
CRITERION = 1.15  # the longest that a cycle may take, in plain steps
PROMPT = "Tell me how a steam engine works, in simple words."


def plain_steps(model: nn.Module, prompt: list[int]) -> Iterator[float]:
    """Seconds of each step of a hand-written greedy loop: the model's layers and head, no engine."""
    pipeline = Pipeline(model, num_stages=1)
    token_id = int(pipeline.prefill(prompt).argmax())
    while True:
        start_s = perf_counter()
        token_id = int(pipeline.step(token_id).argmax())
        yield perf_counter() - start_s


@torch.no_grad()
def _own_step(model: nn.Module, ids: list[int], **memory: Any) -> tuple[int, dict[str, Any]]:
    """One forward of transformers: the next token, and its cache as keyword argument of the next call."""
    output = model(input_ids=torch.tensor([ids]), use_cache=True, **memory)
    keyword = "cache" if hasattr(output, "cache") else "past_key_values"
    return int(output.logits[0, -1].argmax()), {keyword: getattr(output, keyword)}


def own_steps(model: nn.Module, prompt: list[int]) -> Iterator[float]:
    """Seconds of each step of a greedy loop over transformers' own forward and cache."""
    token_id, memory = _own_step(model, prompt)
    while True:
        start_s = perf_counter()
        token_id, memory = _own_step(model, [token_id], **memory)
        yield perf_counter() - start_s


class _Clocked(Oracle):
    """A perfect oracle that notes when each cycle begins: with the call for its draft.

    Before that, it lets the other decoders make one step each, so that all are timed under the same conditions.
    """

    def __init__(self, text: list[int], others: dict[str, Iterator[float]], skip: int) -> None:
        super().__init__(text=text)
        self.others = others
        self.skip = skip  # cycles in which the pipe is not full yet
        self.seconds: dict[str, list[float]] = {name: [] for name in ("cycle", *others)}
        self._began_s: float | None = None

    def propose(self, flight: Flight) -> Proposal:
        ended_s = perf_counter()
        if self._began_s is not None and self.skip < 0:
            self.seconds["cycle"].append(ended_s - self._began_s)
        self.skip -= 1
        if self.skip < 0:
            for name, steps in self.others.items():
                self.seconds[name].append(next(steps))
        self._began_s = perf_counter()
        return super().propose(flight)


def one_round(model: nn.Module, prompt: list[int], text: list[int], num_stages: int = NUM_STAGES) -> dict[str, float]:
    """Median milliseconds of a full-pipe cycle, of a plain step and of a step of transformers, and their ratios."""
    others = {"plain": plain_steps(model, prompt), "transformers": own_steps(model, prompt)}
    pipeline, drafter = Pipeline(model, num_stages), _Clocked(text, others, skip=num_stages - 1)
    sampler = Sampler.greedy(pipeline.decoder.vocab_size, pipeline.decoder.device)
    trace = decode(pipeline, drafter, sampler, StopRule(len(prompt), len(text)), prompt)
    assert trace.token_ids == text
    times = {name: median(seconds) * 1e3 for name, seconds in drafter.seconds.items()}
    return {
        "cycles": len(drafter.seconds["cycle"]),
        "cycle_ms": round(times["cycle"], 3),
        "plain_step_ms": round(times["plain"], 3),
        "transformers_step_ms": round(times["transformers"], 3),
        "ratio": round(times["cycle"] / times["plain"], 4),
        "ratio_to_transformers": round(times["cycle"] / times["transformers"], 4),
    }


def measure(model: nn.Module, prompt: list[int], cycles: int, rounds: int) -> list[dict[str, float]]:
    """``rounds`` rounds of at least ``cycles`` full-pipe cycles."""
    text = reference(model, prompt, cycles + 2 * NUM_STAGES)
    return [one_round(model, prompt, text) for _ in tqdm(range(rounds), unit="round")]


def table(result: dict[str, Any]) -> str:
    """The result, readable."""
    lines = [
        f"{result['target']}, {result['dtype']}, n = {result['num_stages']}, one thread, stages one after the other; "
        f"medians of {result['rounds'][0]['cycles']}",
        "",
        f"{'':8}{'cycle':>12}{'plain step':>14}{'transformers':>16}{'ratio':>9}{'ratio to tf':>14}",
    ]
    for number, row in enumerate(result["rounds"], 1):
        lines.append(
            f"round {number:<2}{row['cycle_ms']:>9.2f} ms{row['plain_step_ms']:>11.2f} ms"
            f"{row['transformers_step_ms']:>13.2f} ms{row['ratio']:>9.3f}{row['ratio_to_transformers']:>14.3f}"
        )
    criterion = f"criterion ≤ {CRITERION}: {'met' if result['ratio'] <= CRITERION else 'MISSED'}"
    lines += ["", f"full-pipe cycle ÷ plain step, best round: {result['ratio']:.3f} ({criterion})"]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if the criterion is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/cycle-smollm2-cpu.json"))
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    target = load("smollm2", device="cpu", dtype="float32")
    rounds = measure(target.model, encode_chat(target, PROMPT)[0].tolist(), CYCLES, ROUNDS)
    best = min(rounds, key=lambda row: row["ratio"])
    head = {"target": target.name, "dtype": "float32", "num_stages": NUM_STAGES, "criterion": CRITERION}
    result = provenance("python -m tests.bench.cycle") | head | {"ratio": best["ratio"], "rounds": rounds}
    save(result, arguments.out)
    print(table(result))
    return 0 if best["ratio"] <= CRITERION else 1


if __name__ == "__main__":
    sys.exit(main())
