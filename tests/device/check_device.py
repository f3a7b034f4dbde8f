"""What has to hold on a device, checked in one go wherever one is at hand; at most eight minutes.

    python -m tests.device.check_device [--target smollm2] [--device auto] [--out results/device-<kind>.json]

The checks are about losslessness: in float32 every text equals the one of transformers' own cached loop; in bfloat16 a
text may leave it at a near-tie, which is shown with its margin; sampled texts are plain sampling's; random integers
are those of every other device. On the CPU alone it runs in a reduced form and says so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

import spd_lib
from spd_lib.baselines import autoregressive
from spd_lib.decode import noise
from spd_lib.decode.sampling import Sampler, make_rule
from spd_lib.draft import Drafter
from spd_lib.target import Decoder, Pipeline, Target, load
from spd_lib.target.load import device_name, encode_chat, versions

from ..families import FAMILIES, fresh, num_layers, own_logits, prompt_of, reference

LIMIT_S = 480
PROMPTS = (
    "What is the capital of France?",
    "Write a Python function that adds two numbers, then call it twice.",
    "List five rivers of Europe, then list them again in reverse order.",
)
DRAFTERS: dict[str, Callable[[], Drafter | str]] = {
    "prompt-lookup": lambda: "prompt-lookup",
    "oracle .3": lambda: spd_lib.Oracle(0.3),
    "random": lambda: "random",
}
# The first four words and word 49151 of (seed, row, position, purpose): the same integers everywhere, for ever.
RECORDED_WORDS = {
    (0, 0, 0, 0): (1713891541, 3781805453, 3159862348, 2600524760, 4047248973),
    (7, 1, 31, 1): (3792698747, 4068879512, 3395210968, 1037472478, 5817135),
    (7, 1, 31, 2): (4045513906, 3916407441, 3271096370, 2040346229, 2241850714),
    (2**63 - 2, 3, 8191, 3): (2970997307, 1458363200, 3241757033, 2979797702, 3473837697),
}
SMALL_PARAMETERS = 1_000_000_000  # up to this size the CPU's texts are worth waiting for
NOISE_WIDTH = 49152
NOISE_TOLERANCE = 1e-6  # of G, relative where |G| > 1: a float32 near 20 has no finer steps


class OutOfTime(Exception):
    """The limit is over; what has been checked until then counts."""


class Clock:
    """Raises :class:`OutOfTime` once ``limit_s`` seconds are over."""

    def __init__(self, limit_s: float) -> None:
        self.end_s = perf_counter() + limit_s

    def check(self) -> None:
        if perf_counter() > self.end_s:
            raise OutOfTime


# --- noise


def check_noise(device: torch.device) -> dict[str, Any]:
    """The recorded integers, and G and u on the device against the CPU's."""
    wrong, largest, inside = [], 0.0, True
    for (seed, row, position, purpose), recorded in RECORDED_WORDS.items():
        words = noise.noise_words(seed, row, position, NOISE_WIDTH, purpose, device)
        if (*words[:4].tolist(), int(words[-1])) != recorded:
            wrong.append({"seed": seed, "row": row, "position": position, "purpose": purpose})
        if not torch.equal(words.cpu(), noise.noise_words(seed, row, position, NOISE_WIDTH, purpose, "cpu")):
            wrong.append({"seed": seed, "purpose": purpose, "all words": "differ from the CPU's"})
        here = noise.gumbel(seed, row, position, NOISE_WIDTH, device).cpu()
        cpu = noise.gumbel(seed, row, position, NOISE_WIDTH, "cpu")
        largest = max(largest, float(((here - cpu).abs() / cpu.abs().clamp_min(1)).max()))
        u = noise.uniforms(words)
        inside &= bool((u > 0).all() and (u < 1).all())
    ends = noise.uniforms(torch.tensor([0, 2**32 - 1], device=device))
    inside &= bool((ends > 0).all() and (ends < 1).all())
    ok = not wrong and largest <= NOISE_TOLERANCE and inside
    return {"ok": ok, "cases": len(RECORDED_WORDS), "wrong": wrong, "largest_G_difference": largest, "u_inside": inside}


# --- greedy texts


def compare_greedy(
    model: nn.Module, prompts: Sequence[list[int]], stages: Sequence[int], count: int, clock: Clock
) -> Iterator[dict[str, Any] | None]:
    """For each prompt × n × drafter: ``None`` where SPD wrote the reference's text, else where and how it left it."""
    for prompt in prompts:
        expected = reference(model, prompt, count)
        ids = torch.tensor([prompt], device=model.device)
        for n, (drafter, make) in itertools.product(stages, DRAFTERS.items()):
            clock.check()
            options = {"num_stages": n, "max_new_tokens": count, "eos_token_id": []}
            text = spd_lib.generate(model, ids, drafter=make(), **options)[0, len(prompt) :].tolist()
            if text == expected:
                yield None
                continue
            index = next(i for i, (a, b) in enumerate(zip(text, expected, strict=True)) if a != b)
            where = {"num_stages": n, "drafter": drafter, "token": index}
            yield where | near_tie(model, prompt, expected[:index], text[index], expected[index])


def near_tie(model: nn.Module, prompt: list[int], text: list[int], ours: int, theirs: int) -> dict[str, Any]:
    """Whether two ids were so close after ``prompt + text`` that the model's own arithmetic cannot tell them apart.

    ``margin``: distance of their logits in the model's own full forward. ``noise``: how far the model's own cached
    steps are from that forward, the largest over all logits; at least one step of the dtype at the top logit.
    """
    full = own_logits(model, prompt + text)
    cached = _cached_logits(model, prompt, text)
    step = torch.finfo(model.dtype).eps * float(full.abs().max())
    margin = abs(float(full[ours] - full[theirs]))
    own_noise = max(float((full - cached).abs().max()), step)
    return {"ids": [ours, theirs], "margin": margin, "noise": own_noise, "near_tie": margin <= 2 * own_noise}


@torch.no_grad()
def _cached_logits(model: nn.Module, prompt: list[int], text: list[int]) -> Tensor:
    """float32 logits [vocab_size] after ``prompt + text``, prefilled and then fed one token at a time."""
    output = model(input_ids=torch.tensor([prompt], device=model.device), use_cache=True)
    keyword = "cache" if hasattr(output, "cache") else "past_key_values"
    for token_id in text:
        step = torch.tensor([[token_id]], device=model.device)
        output = model(input_ids=step, use_cache=True, **{keyword: getattr(output, keyword)})
    return output.logits[0, -1].float()


def _tally(outcomes: Iterator[dict[str, Any] | None], ties_allowed: bool) -> dict[str, Any]:
    """Counts outcomes; ``ok`` if there is at least one and all are equal, or near-ties where those are allowed."""
    cases, differing, over = 0, [], False
    try:
        for outcome in outcomes:
            cases += 1
            if outcome is not None:
                differing.append(outcome)
    except OutOfTime:
        over = True
    ok = cases > 0 and all(ties_allowed and outcome["near_tie"] for outcome in differing)
    return {"ok": ok, "cases": cases, "equal": cases - len(differing), "differing": differing, "out_of_time": over}


def check_tiny(device: torch.device, reduced: bool, clock: Clock) -> dict[str, Any]:
    """float32, the random models of every family; windows shorter than the texts."""

    def outcomes() -> Iterator[dict[str, Any] | None]:
        for family in FAMILIES:
            stages = (1, 3) if reduced else (1, 2, 3, num_layers(family))
            prompts = [prompt_of(length) for length in ((9,) if reduced else (1, 9, 20))]
            for outcome in compare_greedy(fresh(family).to(device), prompts, stages, 12, clock):
                yield None if outcome is None else {"family": family} | outcome

    return _tally(outcomes(), ties_allowed=False)


def check_target(target: Target, reduced: bool, clock: Clock) -> dict[str, Any]:
    """The target in its dtype: exact in float32, else up to near-ties."""
    prompts = [encode_chat(target, prompt)[0].tolist() for prompt in PROMPTS[: 1 if reduced else None]]
    layers = Decoder(target.model).num_layers
    stages = (1, 4) if reduced else (1, 4, 8, layers)
    outcomes = compare_greedy(target.model, prompts, stages, 12 if reduced else 40, clock)
    return _tally(outcomes, ties_allowed=target.dtype != torch.float32)


# --- sampled texts


def _plain(target: Target, prompt: list[int], count: int, seed: int) -> list[int | None]:
    """``count`` tokens of plain sampling at temperature 1."""
    pipeline = Pipeline(target.model, 1)
    size, device = pipeline.decoder.vocab_size, pipeline.decoder.device
    rule = make_rule("gumbel", seed=seed, row=0, vocab_size=size, device=device)
    return autoregressive(pipeline, Sampler(rule, vocab_size=size, device=device), prompt, count).token_ids


def check_gumbel(target: Target, reduced: bool, clock: Clock) -> dict[str, Any]:
    """Temperature 1: for each seed and n, SPD's text is plain sampling's."""
    prompt = encode_chat(target, PROMPTS[2])[0].tolist()
    ids, count = torch.tensor([prompt], device=target.device), 8 if reduced else 32

    def outcomes() -> Iterator[dict[str, Any] | None]:
        for seed in range(2 if reduced else 8):
            expected = _plain(target, prompt, count, seed)
            for n in (1, 4) if reduced else (1, 4, 8):
                clock.check()
                options = {"temperature": 1.0, "seed": seed, "eos_token_id": [], "max_new_tokens": count}
                text = spd_lib.generate(target.model, ids, num_stages=n, **options)[0, len(prompt) :].tolist()
                yield None if text == expected else {"seed": seed, "num_stages": n, "text": text, "plain": expected}

    return _tally(outcomes(), ties_allowed=False)


def check_across(here: Target, cpu: Target, clock: Clock) -> dict[str, Any]:
    """float32, the same seeds on device and CPU: equal texts, or they part where logits + G are nearly tied."""
    prompt = encode_chat(here, PROMPTS[2])[0].tolist()

    def outcomes() -> Iterator[dict[str, Any] | None]:
        for seed in range(4):
            clock.check()
            ours, theirs = _plain(here, prompt, 24, seed), _plain(cpu, prompt, 24, seed)
            if ours == theirs:
                yield None
                continue
            index = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
            prefix = prompt + theirs[:index]
            logits = own_logits(cpu.model, prefix)
            drift = float((own_logits(here.model, prefix).cpu() - logits).abs().max())
            scores = logits + noise.gumbel(seed, 0, len(prefix), len(logits), "cpu")
            margin = abs(float(scores[ours[index]] - scores[theirs[index]]))
            yield {"seed": seed, "token": index, "margin": margin, "noise": drift, "near_tie": margin <= 2 * drift}

    return _tally(outcomes(), ties_allowed=True)


# --- all of it


def run_checks(name: str, device: str, limit_s: float) -> dict[str, Any]:
    """Every check in turn; a later one finds what the earlier ones left of ``limit_s``."""
    clock = Clock(limit_s)
    exact = load(name, device=device, dtype="float32")
    place, reduced = exact.device, exact.device.type == "cpu"
    results = _run("random integers and Gumbel noise", check_noise, place)
    results |= _run("tiny families, float32, greedy", check_tiny, place, reduced, clock)
    results |= _run(f"{name}, float32, greedy", check_target, exact, reduced, clock)
    results |= _run(f"{name}, float32, gumbel", check_gumbel, exact, reduced, clock)
    if not reduced and exact.model.num_parameters() <= SMALL_PARAMETERS:
        cpu = load(name, device="cpu", dtype="float32")
        results |= _run(f"{name}, float32, gumbel, against the CPU", check_across, exact, cpu, clock)
    del exact  # two dtypes of a large model need not fit at once
    half = load(name, device=device, dtype="bfloat16")
    results |= _run(f"{name}, bfloat16, greedy", check_target, half, reduced, clock)
    return {
        "ok": all(result["ok"] for result in results.values()),
        "reduced": reduced,
        "device": device_name(place),
        "device_type": place.type,
        "target": name,
        "dtypes": ["float32", "bfloat16"],
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "threads": torch.get_num_threads(),
        "checks": results,
    }


def _run(title: str, check: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, dict[str, Any]]:
    start_s = perf_counter()
    result = check(*arguments)
    result["seconds"] = round(perf_counter() - start_s, 1)
    print(f"{'ok   ' if result['ok'] else 'WRONG'} {title}: {_line(result)}", flush=True)
    return {title: result}


def _line(result: dict[str, Any]) -> str:
    parts = [f"{result.get('equal', result['cases'] - len(result.get('wrong', [])))} of {result['cases']} equal"]
    parts += [
        f"token {d['token']}: margin {d['margin']:.2e}, noise {d['noise']:.2e}, {'tie' if d['near_tie'] else 'NO TIE'}"
        for d in result.get("differing", [])[:4]
        if "margin" in d
    ]
    if result.get("out_of_time"):
        parts.append("out of time")
    return "; ".join([*parts, f"{result['seconds']} s"])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the checks, writes their JSON and returns 0 if all is well."""
    given = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="python -m tests.device.check_device", description=__doc__.split("\n")[0])
    parser.add_argument("--target", default="smollm2", help="a name that spd_lib.load knows (default: smollm2)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="where the result goes (default: results/device-<kind>.json)")
    arguments = parser.parse_args(given)
    if arguments.device == "cpu" or not torch.cuda.is_available():
        print("no CUDA device: reduced form, on the CPU")
    result = {
        "command": f"{parser.prog} {shlex.join(given)}".strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions() | {"cuda": torch.version.cuda},
        **run_checks(arguments.target, arguments.device, LIMIT_S),
    }
    kind = re.sub(r"[^a-z0-9]+", "-", result["device"].lower()).strip("-") if not result["reduced"] else "cpu"
    out = arguments.out or Path("results") / f"device-{kind}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{'all well' if result['ok'] else 'NOT all well'} on {result['device']}: {out}")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
