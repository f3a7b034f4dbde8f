"""``python -m spd_lib acceptance``: how often the drafter is right. torch is imported by the run alone."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import check_file

if TYPE_CHECKING:
    from ..draft.module import PipelineDraftModule
    from ..target import Target

STAGES = (2, 3, 4, 5, 6, 8, 10, 15, 16)


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Measures acceptance (accepted ÷ judged drafts) on questions that the target answers, by replay: the answers "
        "are written once and kept in the cache folder, then every n takes seconds."
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("--target", help="smollm2, a hub id or a folder (default: the environment's SPD_TARGET, else smollm2)")
    add(
        "--drafter", default="shipped", metavar="NAME", help="trained weights: a folder, a hub id, or shipped (default)"
    )
    add("--window", type=int, metavar="N", help="let it look back over N tokens, whatever it was trained for")
    add("--stages", type=integers, default=STAGES, metavar="N,M,...", help="default: 2,3,4,5,6,8,10,15,16")
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


def integers(text: str) -> tuple[int, ...]:
    """The type of an argument such as 2,4,8."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers such as 2,4,8, got {text!r}") from None


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints, saves; 0, or 130 after Ctrl-C."""
    try:
        _measure(arguments)
    except KeyboardInterrupt:
        print("stopped; the answers written so far are kept, and the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def _measure(arguments: argparse.Namespace) -> None:
    """What can be wrong is found out before the answers, which take minutes."""
    from ..target import load
    from ..target.fingerprint import weights_digest
    from ..target.layers import Decoder
    from ..target.load import silence_libraries
    from .acceptance import BOOTSTRAP_SEED, acceptance_table, fit, looking_back, plans_for
    from .questions import load_questions, questions_digest
    from .report import provenance, readable, save
    from .texts import Sampling, write_texts

    silence_libraries()
    stages = tuple(dict.fromkeys(arguments.stages))  # naming one twice does not measure it twice
    if arguments.limit is not None and arguments.limit < 1:
        raise ValueError(f"limit must be above 0, got {arguments.limit}")
    questions = load_questions(arguments.questions)[: arguments.limit]
    sampling = Sampling(arguments.temperature, arguments.seed)
    target = load(arguments.target, device=arguments.device, dtype=arguments.dtype)
    plans_for(Decoder(target.model), stages, arguments.plan)
    module = _module(arguments, target)
    if arguments.window is not None:
        module = looking_back(module, arguments.window)
    drafter = weights_digest(module)
    fit(module, target)
    if arguments.save is not None:
        check_file(arguments.save, Path(arguments.questions))
    texts = write_texts(target, questions, sampling, arguments.max_new_tokens)
    settings: dict[str, Any] = {
        "target": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "drafter": drafter,
        "window": module.config.window,
        "plan": arguments.plan,
        "temperature": arguments.temperature,
        "coupling": None if sampling.greedy else arguments.coupling,
        "seed": arguments.seed,
        "bootstrap_seed": BOOTSTRAP_SEED,
        "questions": arguments.questions,
        "questions_digest": questions_digest(questions),
        "max_new_tokens": arguments.max_new_tokens,
    }
    table = acceptance_table(target, module, texts, stages, sampling, coupling=arguments.coupling, plan=arguments.plan)
    command = f"python -m spd_lib {shlex.join(sys.argv[1:])}"
    result = provenance(command, target.device) | settings | table
    print(json.dumps(result, ensure_ascii=False) if arguments.json else readable(result))
    if arguments.save is not None:
        save(result, arguments.save)


def _module(arguments: argparse.Namespace, target: Target) -> PipelineDraftModule:
    from ..draft.pretrained import load_module, shipped_module

    if arguments.drafter == "shipped":
        return shipped_module(target.name)
    if "/" not in arguments.drafter and not (arguments.drafter and Path(arguments.drafter).is_dir()):
        raise ValueError(f"a trained drafter is shipped, a folder or a hub id, got {arguments.drafter!r}")
    return load_module(arguments.drafter, target.tokenizer)
