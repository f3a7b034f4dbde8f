"""The command line: ``python -m spd_lib generate`` writes a text, ``python -m spd_lib trace`` looks at a saved run.

torch is imported only by the commands that need it, so that help and errors in the arguments come at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__
from .core.perfetto import to_perfetto
from .core.trace import Trace
from .evaluate.command import add_acceptance
from .evaluate.questions import is_text
from .files import check_file, whole_file
from .terminal import TokenStream, figures, in_colour, summary
from .train.command import add_train

if TYPE_CHECKING:
    from torch import Tensor

    from .target import Target

OK, WRONG, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141  # exit codes, as shells know them

EXAMPLES = """\
examples:
  python -m spd_lib generate "Why is the sky blue?"
  python -m spd_lib generate "Tell me a story." --temperature 0.8 --seed 1 --stages 8
  echo "Write a haiku." | python -m spd_lib generate - --json
  python -m spd_lib generate "Count to ten." --trace run.json
  python -m spd_lib trace run.json --perfetto run.perfetto.json     # open it in ui.perfetto.dev
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 2 for an error (one line on stderr), 130 after Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        with _terminated_like_interrupted():
            return arguments.run(arguments)
    except KeyboardInterrupt:  # before there is anything to keep; later every command ends in its own way
        print("spd_lib: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, say `head`, has seen enough; Python must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        expected = isinstance(error, (ValueError, OSError))
        message = " ".join(str(error).split())
        print(f"spd_lib: {message if expected else f'{type(error).__name__}: {message}'}", file=sys.stderr)
        return WRONG


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Whoever sends a TERM, say a job scheduler, gets what Ctrl-C gives: what is done so far."""
    if threading.current_thread() is not threading.main_thread():  # no other one may set a handler
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- arguments


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="python -m spd_lib",
        description="Speculative Pipeline Decoding.",
        epilog=EXAMPLES,
        formatter_class=form,
    )
    parser.add_argument("--version", action="version", version=f"spd_lib {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    generate = commands.add_parser("generate", help="write a text", epilog=EXAMPLES, formatter_class=form)
    _add_generate(generate)
    trace = commands.add_parser(
        "trace", help="look at a run that generate saved", epilog=EXAMPLES, formatter_class=form
    )
    trace.add_argument("file", type=Path, help="a Trace, as `generate --trace FILE` saves it")
    trace.add_argument("--perfetto", type=Path, metavar="OUT", help="write it as a timeline for ui.perfetto.dev")
    trace.set_defaults(run=_trace)
    add_train(commands.add_parser("train", help="train a drafter"))
    add_acceptance(commands.add_parser("acceptance", help="measure how often a drafter is right"))
    return parser


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_generate)
    parser.description = (
        "Writes the target's answer to PROMPT. In a terminal, tokens that were drafted and accepted and tokens that "
        "the target corrected have their own colours (NO_COLOR turns them off)."
    )
    add = parser.add_argument
    add("prompt", metavar="PROMPT", help="what to say to the model; - reads it from the standard input")
    add("--target", help="smollm2, a hub id or a folder (default: the environment's SPD_TARGET, else smollm2)")
    add("--drafter", default="prompt-lookup", help="shipped, prompt-lookup (default), oracle, random, or a folder")
    add("--stages", type=int, metavar="N", help="stages of the pipeline, up to the model's layers (default: 4)")
    add("--plan", type=_plan, default="even", help="even (default), balanced, or the layers per stage: 8,8,7,7")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer, in tokens (default: 128)")
    add("--temperature", type=float, default=0.0, help="0 (default) is greedy")
    add("--top-k", type=int, metavar="K", help="sample among the K likeliest tokens")
    add("--top-p", type=float, metavar="P", help="sample among the likeliest tokens that make up P")
    add("--coupling", default="gumbel", metavar="RULE", help="gumbel (default) or rejection: how drafts are judged")
    add("--seed", type=int, help="of the sampling; the same seed gives the same text")
    add("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, ...")
    add("--dtype", help="float32, bfloat16 or float16 (default: float32 on the CPU, bfloat16 elsewhere)")
    add("--chat", action=argparse.BooleanOptionalAction, default=True, help="use the chat template, if there is one")
    add(
        "--json",
        action="store_true",
        help="print one JSON object instead: text, token ids, metrics, settings, versions",
    )
    add("--trace", type=Path, metavar="FILE", help="save the run, cycle by cycle")


def _plan(text: str) -> str | list[int]:
    try:
        return [int(count) for count in text.split(",")]
    except ValueError:
        return text


def _num_stages(arguments: argparse.Namespace) -> int:
    if arguments.stages is not None:
        return arguments.stages
    return len(arguments.plan) if isinstance(arguments.plan, list) else 4


# --- generate


def _generate(arguments: argparse.Namespace) -> int:
    prompt = sys.stdin.read().rstrip("\n") if arguments.prompt == "-" else arguments.prompt
    if not is_text(prompt):
        raise ValueError("the prompt is not UTF-8")
    from .target.load import silence_libraries

    silence_libraries()
    from .decode import GenerateOutput, generate
    from .draft import make_drafter
    from .target import load

    target = load(arguments.target, device=arguments.device, dtype=arguments.dtype)
    if arguments.trace is not None:
        check_file(arguments.trace)
    colour = in_colour(sys.stdout)
    stream = TokenStream(target.tokenizer, None if arguments.json else sys.stdout, colour)
    output = generate(
        target.model,
        _encode(target, prompt, arguments.chat),
        drafter=make_drafter(arguments.drafter, target.tokenizer),
        num_stages=_num_stages(arguments),
        plan=arguments.plan,
        max_new_tokens=arguments.max_new_tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        coupling=arguments.coupling,
        seed=arguments.seed,
        on_commit=stream.commit,
        return_dict_in_generate=True,
    )
    stream.end()
    assert isinstance(output, GenerateOutput) and output.traces
    trace = output.traces[0].with_texts(lambda token_id: target.tokenizer.decode([token_id]))
    trace.notes["drafter"] = arguments.drafter
    if arguments.trace is not None:
        with whole_file(arguments.trace) as place:
            place.write_text(trace.to_json(), encoding="utf-8")
    if arguments.json:
        print(json.dumps(_report(arguments, target, trace, stream), ensure_ascii=False))
    else:
        print(summary(trace, stream.tokens_per_second, colour), file=sys.stderr)
    return INTERRUPTED if trace.stop_reason == "interrupted" else OK


def _encode(target: Target, prompt: str, chat: bool) -> Tensor:
    from .target.load import encode_chat

    if chat:
        return encode_chat(target, prompt)
    return target.tokenizer(prompt, return_tensors="pt")["input_ids"].long().to(target.device)


def _report(arguments: argparse.Namespace, target: Target, trace: Trace, stream: TokenStream) -> dict[str, Any]:
    from .target.load import device_name, versions

    speed = stream.tokens_per_second
    settings = {
        "target": target.name,
        "device": str(target.device),
        "device_name": device_name(target.device),
        "dtype": str(target.dtype).removeprefix("torch."),
        "num_stages": trace.num_stages,
        "temperature": arguments.temperature,
        "top_k": arguments.top_k,
        "top_p": arguments.top_p,
        "chat": arguments.chat,
    }
    return {
        "text": target.tokenizer.decode(trace.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
        "token_ids": trace.token_ids,
        "prompt_tokens": trace.prompt_length,
        "stop_reason": trace.stop_reason,
        "metrics": figures(trace) | {"tokens_per_second": None if math.isnan(speed) else speed},
        "seed": trace.notes.get("seed"),
        "settings": settings | trace.notes,
        "versions": versions(),
    }


# --- trace


def _trace(arguments: argparse.Namespace) -> int:
    if arguments.perfetto is not None:
        check_file(arguments.perfetto, arguments.file)
    content = arguments.file.read_bytes()
    try:
        trace = Trace.from_json(content.decode())
        line, timeline = summary(trace), json.dumps(to_perfetto(trace), ensure_ascii=False)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{arguments.file} is not a Trace that `generate --trace` saved") from None
    if arguments.perfetto is not None:
        with whole_file(arguments.perfetto) as place:
            place.write_text(timeline, encoding="utf-8")
    print(line)
    return OK
