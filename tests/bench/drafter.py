"""What the shipped drafter costs, ``python -m tests.bench.drafter``: its time and weights beside those of a stage, and
its time and memory in texts of different lengths. One thread, stages one after the other, medians of full-pipe cycles.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tqdm import tqdm

from spd_lib.baselines import autoregressive
from spd_lib.core.trace import Trace
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Oracle, Proposal
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.draft.pretrained import shipped_module
from spd_lib.target import Decoder, Flight, Pipeline
from spd_lib.target.fingerprint import weights_digest
from spd_lib.target.load import load

from ..results import provenance, save

STAGES = (4, 5, 8, 16)
LENGTHS = (256, 512, 1024, 2048, 4096)  # tokens of the text before the first draft; the window is the first
CYCLES = 200
ROUNDS = 3
FLAT = 0.10  # how much time and memory may differ beyond the window


class Attended:
    """The drafter does all its work, then an oracle drafts what keeps the pipe full."""

    def __init__(self, module: PipelineDraftModule, text: list[int]) -> None:
        self.inner, self.oracle = PipelineDrafter(module), Oracle(text=text)
        self.anchors = self.inner.anchors

    def begin(self, pipeline: Pipeline, prompt_ids: list[int]) -> None:
        self.inner.begin(pipeline, prompt_ids)
        self.oracle.begin(pipeline, prompt_ids)

    def propose(self, flight: Flight) -> Proposal:
        self.inner.propose(flight)
        return self.oracle.propose(flight)

    def rollback(self, to: int) -> None:
        self.inner.rollback(to)
        self.oracle.rollback(to)


def run(pipeline: Pipeline, module: PipelineDraftModule, prompt: list[int], cycles: int) -> tuple[Trace, int]:
    """The Trace of a run whose pipe stays full, and the bytes of the drafter's rows at its end."""
    decoder, count = pipeline.decoder, cycles + pipeline.num_stages
    sampler = Sampler.greedy(decoder.vocab_size, decoder.device)
    text = autoregressive(Pipeline(decoder.model, 1), sampler, prompt, count).token_ids
    drafter = Attended(module, text)
    trace = decode(pipeline, drafter, sampler, StopRule(len(prompt), count), prompt)
    assert trace.token_ids == text
    return trace, drafter.inner.memory_bytes


def lanes(trace: Trace) -> dict[str, float]:
    """Median milliseconds of each lane over the cycles with a full pipe."""
    found = defaultdict(list)
    for cycle in trace.cycles:
        if all(cycle.stages) and cycle.draft is not None:
            for span in cycle.spans:
                found[span.lane].append(span.end_s - span.start_s)
    return {lane: median(seconds) * 1e3 for lane, seconds in found.items()}


def beside_a_stage(decoder: Decoder, module: PipelineDraftModule, prompt: list[int], num_stages: int) -> dict[str, Any]:
    """Draft time against the slowest stage's, the best of a few rounds, and the weights of both in millions."""
    pipeline = Pipeline(decoder.model, num_stages)
    rounds = [lanes(run(pipeline, module, prompt, CYCLES)[0]) for _ in range(ROUNDS)]
    times = {lane: min(each[lane] for each in rounds) for lane in rounds[0]}
    stage = max(times[f"stage {index}"] for index in range(num_stages))
    layer = sum(weight.numel() for weight in decoder.base.layers[0].parameters())
    return {
        "n": num_stages,
        "draft_ms": round(times["draft"], 3),
        "slowest_stage_ms": round(stage, 3),
        "last_stage_and_head_ms": round(times[f"stage {num_stages - 1}"] + times["head"], 3),
        "free": times["draft"] <= stage,
        "stage_weights_m": round(max(pipeline.plan.counts) * layer / 1e6, 2),
        "drafter_weights_m": round(sum(weight.numel() for weight in module.parameters()) / 1e6, 2),
        "drafter_head_m": round(module.head.weight.numel() / 1e6, 2),
    }


def in_long_texts(decoder: Decoder, module: PipelineDraftModule) -> list[dict[str, Any]]:
    """Draft time and memory after so many tokens, at n = 4; lengths take turns, so that all meet the same machine."""
    pipeline, dice = Pipeline(decoder.model, 4), torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 40_000, (max(LENGTHS),), generator=dice).tolist()
    times, sizes = defaultdict(list), {}
    for _ in range(ROUNDS):
        for length in LENGTHS:
            trace, sizes[length] = run(pipeline, module, ids[:length], CYCLES // 4)
            times[length].append(lanes(trace)["draft"])
    return [
        {"tokens": length, "draft_ms": round(min(times[length]), 3), "memory_bytes": sizes[length]}
        for length in LENGTHS
    ]


def spread(values: list[float]) -> float:
    """How far the largest value is above the smallest one, as a share of it."""
    return max(values) / min(values) - 1


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if the draft is slower than a stage at n = 4 or 5, or grows beyond its window."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/drafter-cost-smollm2-cpu.json"))
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    target, module = load("smollm2", device="cpu", dtype="float32"), shipped_module()
    digest, decoder = weights_digest(module), Decoder(target.model)
    prompt = list(range(1000, 1000 + module.config.window))
    stages = [beside_a_stage(decoder, module.float(), prompt, n) for n in tqdm(STAGES, unit="n")]
    texts = in_long_texts(decoder, module)
    flat = all(spread([row[key] for row in texts]) <= FLAT for key in ("draft_ms", "memory_bytes"))
    result = provenance("python -m tests.bench.drafter") | {
        "target": target.name,
        "dtype": "float32",
        "drafter": digest,
        "window": module.config.window,
        "stages": stages,
        "texts": texts,
        "flat": flat,
    }
    save(result, arguments.out)
    for row in (*stages, *texts):
        print(row)
    return 0 if flat and all(row["free"] for row in stages if row["n"] in (4, 5)) else 1


if __name__ == "__main__":
    sys.exit(main())
