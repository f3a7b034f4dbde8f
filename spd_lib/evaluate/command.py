"""``python -m spd_lib acceptance``: how often the drafter is right. torch is imported by the run alone."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

DEFAULT_STAGES = (2, 3, 4, 5, 6, 8, 10, 15, 16)


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Measures acceptance (accepted ÷ judged drafts) on questions that the target answers, by replay: the answers "
        "are written once and kept in the cache folder, then every n takes seconds."
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("--target", help="smollm2, a hub id or a folder (default: the environment's SPD_TARGET, else smollm2)")
    add("--drafter", default="shipped", metavar="FOLDER", help="a trained drafter (default: the shipped one)")
    add("--stages", type=_integers, default=DEFAULT_STAGES, metavar="N,M,...", help="default: 2,3,4,5,6,8,10,15,16")
    add("--plan", default="even", choices=("even", "balanced"), help="default: even")
    add("--temperature", type=float, default=0.0, help="0 (default) is greedy")
    add("--coupling", default="gumbel", choices=("gumbel", "rejection"), help="how sampled drafts are judged")
    add("--questions", default="own", metavar="FILE", help="own (default), context, or a JSONL file")
    add("--limit", type=int, metavar="N", help="only the first N questions")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: 128)")
    add("--seed", type=int, default=0, help="of the sampling")
    add("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, ...")
    add("--dtype", help="float32, bfloat16 or float16 (default: float32 on the CPU, bfloat16 elsewhere)")
    add("--json", action="store_true", help="print one JSON object instead of a table")
    add("--save", type=Path, metavar="FILE", help="also write the JSON object to a file")


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints, saves."""
    from ..draft.shipped import load_module, shipped_module
    from ..target import load
    from .acceptance import acceptance_table, weights_digest
    from .questions import load_questions
    from .texts import Sampling, write_texts

    questions = load_questions(arguments.questions)[: arguments.limit]
    target = load(arguments.target, device=arguments.device, dtype=arguments.dtype)
    if arguments.drafter == "shipped":
        module = shipped_module(target.name)
    else:
        module = load_module(Path(arguments.drafter), target.tokenizer)
    digest = weights_digest(module)
    sampling = Sampling(arguments.temperature, arguments.seed)
    texts = write_texts(target, questions, sampling, arguments.max_new_tokens)
    table = acceptance_table(
        target, module, texts, arguments.stages, sampling, coupling=arguments.coupling, plan=arguments.plan
    )
    result = _settings(arguments, target, digest) | table
    if arguments.save is not None:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result) if arguments.json else _printed(result))
    return 0


def _settings(arguments: argparse.Namespace, target: Any, digest: str) -> dict[str, Any]:
    import torch

    from ..target.load import device_name, versions

    return {
        "command": "python -m spd_lib " + " ".join(sys.argv[1:]),
        "date": datetime.date.today().isoformat(),
        "machine": {
            "device": device_name(target.device),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "versions": versions(),
        "target": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "drafter": digest,
        "plan": arguments.plan,
        "temperature": arguments.temperature,
        "coupling": None if arguments.temperature == 0 else arguments.coupling,
        "seed": arguments.seed,
        "questions": arguments.questions,
        "max_new_tokens": arguments.max_new_tokens,
    }


def _printed(result: dict[str, Any]) -> str:
    """The table for people."""
    categories = list(result["prompt_lookup"]["by_category"])
    lines = [f"{'n':>13}  accepted  95 % interval    raw   full pipe  " + "  ".join(f"{c:>12}" for c in categories)]
    rows = [(str(row["n"]), row, row["agreement"][str(row["n"])]) for row in result["stages"]]
    for name, row, full in [*rows, ("prompt lookup", result["prompt_lookup"], None)]:
        low, high = row["interval"] or (None, None)
        cells = "  ".join(f"{_number(row['by_category'][category]):>12}" for category in categories)
        lines.append(
            f"{name:>13}  {_number(row['acceptance']):>8}  {_number(low)} … {_number(high)}  {_number(row['raw'])}  "
            f"{_number(full):>9}  {cells}"
        )
    lines.append(
        f"{result['texts']} answers, {result['counted_tokens']} of {result['new_tokens']} tokens before a repeated "
        f"12-gram; the drafter can draft {_number(result['ceiling'])} of them"
    )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
