"""The full grid of losslessness, ``make lossless``: too long for CI, so its result is committed.

Greedy: SmolLM2 in float32, every drafter, n from 1 to all 30 layers, 8 prompts of 64 tokens, each token compared with a
hand-written loop over transformers' own cache. Sampling: the Gumbel coupling on tiny models, 200 seeds, each text
compared with plain sampling. Goes on where it was interrupted, as long as the library's code is the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from spd_lib.baselines import autoregressive
from spd_lib.core import metrics
from spd_lib.core.simulate import simulate
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler, make_rule, warpers
from spd_lib.decode.stopping import StopRule
from spd_lib.target import Pipeline
from spd_lib.target.load import load

from ..families import FAMILIES, VOCAB, num_layers, own_logits, prompt_of, reference, tiny
from ..results import provenance, save
from . import real
from .cases import flags_of

STAGES = (1, 2, 3, 4, 5, 8, 16, 30)
NEW_TOKENS = 64
SEEDS = 200
SAMPLED_TOKENS = 12
CHAINS = ((0.7, None, None), (1.0, 20, None), (1.5, None, 0.9))  # temperature, top-k, top-p


def compare(model: nn.Module, prompt: list[int], found: list[int], expected: list[int]) -> dict[str, Any]:
    """Nothing if the texts agree; else where they part and how close the model's first two choices are there."""
    if found == expected:
        return {}
    place = next(
        (index for index, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
        min(len(found), len(expected)),
    )
    best, second = own_logits(model, prompt + expected[:place]).topk(2).values.tolist()
    return {"differs_at": place, "found": found[place : place + 1], "top2_margin": best - second}


def greedy_case(model: nn.Module, prompt: list[int], text: list[int], drafter: str, num_stages: int) -> dict[str, Any]:
    """One cell of the grid; "equal" only if the text, the cycle count and the whole Trace are right."""
    trace = real.spd(model, prompt, real.DRAFTERS[drafter](text), num_stages, len(text))
    count, cycles = metrics.num_tokens(trace), metrics.num_cycles(trace)
    parts = compare(model, prompt, trace.token_ids, text)
    formula = metrics.expected_cycles(num_stages, count, metrics.num_refills(trace))
    same = trace == simulate(flags_of(trace), num_stages, count, prompt_length=len(prompt))
    row = {"cycles": cycles, "accepted": metrics.num_accepted(trace), "judged": metrics.num_judged(trace)}
    return row | {"equal": not parts and cycles == formula and same} | parts


def gumbel_cases(seed: int) -> Iterator[dict[str, Any]]:
    """Plain sampling with ``seed`` against the untrained drafters and three depths, on one family and one chain."""
    family = FAMILIES[seed % len(FAMILIES)]
    model, layers, prompt = tiny(family), num_layers(family), prompt_of(1 + seed % 20, seed)
    chain = warpers(*CHAINS[seed % len(CHAINS)])

    def sampler() -> Sampler:
        rule = make_rule("gumbel", seed=seed, row=0, vocab_size=VOCAB, device=torch.device("cpu"))
        return Sampler(rule, chain, vocab_size=VOCAB, device=torch.device("cpu"))

    text = autoregressive(_pipeline(family, 1), sampler(), prompt, SAMPLED_TOKENS).token_ids
    for num_stages in (1, 3, layers):
        for name, make in real.UNTRAINED.items():
            stop = StopRule(len(prompt), SAMPLED_TOKENS)
            trace = decode(_pipeline(family, num_stages), make(text), sampler(), stop, prompt)
            parts = compare(model, prompt, trace.token_ids, text)
            yield {"family": family, "seed": seed, "drafter": name, "num_stages": num_stages} | parts


@cache
def _pipeline(family: str, num_stages: int) -> Pipeline:
    return Pipeline(tiny(family), num_stages)


def start(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The result so far, or an empty one if there is none of this code with these settings."""
    fresh = settings | provenance("python -m tests.lossless.grid")
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        same_code = fresh["sources"].items() <= old.get("sources", {}).items()
        if same_code and all(old.get(key) == fresh[key] for key in (*settings, "machine", "versions")):
            return old
        print(f"{path} is of other code, settings or machine: starting anew")
    return fresh | {"gumbel": {"done_seeds": 0, "cases": 0}, "cases": [], "mismatches": []}


def run_greedy(result: dict[str, Any], path: Path, model: nn.Module, prompts: list[list[int]]) -> None:
    """Fills in the cells of the grid that are not there yet; saves after each."""
    done = {(row["prompt"], row["drafter"], row["num_stages"]) for row in result["cases"]}
    cells = [(p, d, n) for p in range(len(prompts)) for n in result["stages"] for d in result["drafters"]]
    texts: dict[int, list[int]] = {}
    for cell in tqdm([cell for cell in cells if cell not in done], total=len(cells), initial=len(done), unit="case"):
        index, drafter, num_stages = cell
        if index not in texts:
            texts[index] = reference(model, prompts[index], result["new_tokens"])
        row = {"prompt": index, "drafter": drafter, "num_stages": num_stages}
        row |= greedy_case(model, prompts[index], texts[index], drafter, num_stages)
        result["cases"].append(row)
        if not row["equal"]:
            result["mismatches"].append(row)
        save(result, path)


def run_gumbel(result: dict[str, Any], path: Path, seeds: int) -> None:
    """The seeds that are not done yet; saves after each."""
    done = result["gumbel"]
    for seed in tqdm(range(done["done_seeds"], seeds), total=seeds, initial=done["done_seeds"], unit="seed"):
        for row in gumbel_cases(seed):
            done["cases"] += 1
            if "differs_at" in row:
                result["mismatches"].append(row)
        done["done_seeds"] = seed + 1
        save(result, path)


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/lossless-smollm2-cpu.json"))
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    target = load("smollm2", device="cpu", dtype="float32")
    settings = {
        "target": target.name,
        "dtype": "float32",
        "new_tokens": NEW_TOKENS,
        "stages": list(STAGES),
        "drafters": list(real.DRAFTERS),
        "prompts": list(real.PROMPTS),
    }
    result = start(arguments.out, settings)
    run_greedy(result, arguments.out, target.model, [real.prompt_ids(target, i) for i in range(len(real.PROMPTS))])
    run_gumbel(result, arguments.out, SEEDS)
    greedy, sampled, wrong = len(result["cases"]), result["gumbel"]["cases"], len(result["mismatches"])
    print(f"{greedy} greedy and {sampled} sampled texts, {wrong} mismatches → {arguments.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
