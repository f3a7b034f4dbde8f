"""One case of the losslessness suite: a tiny model, a plan, a drafter, a prompt; and all that has to hold for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from spd_lib.core import metrics
from spd_lib.core.simulate import simulate
from spd_lib.core.trace import Trace
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Drafter, Oracle, PipelineDrafter, PromptLookup, Random
from spd_lib.target import Pipeline
from spd_lib.target.layers import Decoder

from ..draft.modules import tiny_module
from ..families import VOCAB, prompt_of, reference_of, tiny

NEW_TOKENS = 12

# Made for the family that they draft for.
DRAFTERS: dict[str, Callable[[str], Drafter]] = {
    "oracle 0": lambda family: Oracle(0.0),
    "oracle .3": lambda family: Oracle(0.3),
    "oracle 1": lambda family: Oracle(1.0),
    "random": lambda family: Random(),
    "prompt lookup": lambda family: PromptLookup(),
    "draft module": lambda family: PipelineDrafter(tiny_module(Decoder(tiny(family)))),
}


@dataclass(frozen=True)
class Case:
    """``plan``: a name or the layers per stage. ``drafter``: a name, or the generated tokens at which it errs."""

    family: str
    num_stages: int
    plan: str | tuple[int, ...]
    drafter: str | tuple[int, ...]
    prompt_length: int
    prompt_seed: int = 0
    count: int = NEW_TOKENS
    eos: tuple[int, ...] = ()

    @property
    def prompt(self) -> list[int]:
        return prompt_of(self.prompt_length, self.prompt_seed)


@lru_cache(maxsize=256)
def _pipeline(family: str, num_stages: int, plan: str | tuple[int, ...]) -> Pipeline:
    """Shared by many texts on purpose: what one text leaves behind must not reach the next."""
    return Pipeline(tiny(family), num_stages, plan)


def _drafter(case: Case, text: Sequence[int]) -> Drafter:
    if isinstance(case.drafter, str):
        return DRAFTERS[case.drafter](case.family)
    return Oracle(wrong_at=case.drafter, text=text)


def expected_text(case: Case) -> list[int]:
    """What the model writes by itself, up to the first end-of-sequence token."""
    text = list(reference_of(case.family, tuple(case.prompt), case.count))
    ends = [index for index, token_id in enumerate(text) if token_id in case.eos]
    return text[: ends[0] + 1] if ends else text


def run(case: Case) -> Trace:
    """Decodes the case with the engine."""
    pipeline = _pipeline(case.family, case.num_stages, case.plan)
    full_text = reference_of(case.family, tuple(case.prompt), case.count)
    sampler = Sampler.greedy(VOCAB, pipeline.decoder.device)
    stop = StopRule(case.prompt_length, case.count, case.eos)
    return decode(pipeline, _drafter(case, full_text), sampler, stop, case.prompt)


def flags_of(trace: Trace) -> list[bool]:
    """For each judged draft in order, whether it was right."""
    return [verdict.accepted for cycle in trace.cycles for verdict in cycle.verdicts]


def check(case: Case) -> Trace:
    """Runs the case; raises ``AssertionError`` if text, cycle count or Trace are not what they must be."""
    expected = expected_text(case)
    trace = run(case)
    assert trace.token_ids == expected, f"{case}: wrote {trace.token_ids}, the model alone writes {expected}"
    count, cycles = metrics.num_tokens(trace), metrics.num_cycles(trace)
    formula = metrics.expected_cycles(case.num_stages, count, metrics.num_refills(trace))
    assert cycles == formula, f"{case}: K is {cycles}, the formula says {formula}"
    ended = "eos" if expected[-1] in case.eos else "budget"
    simulated = replace(
        simulate(flags_of(trace), case.num_stages, count, budget=case.count, prompt_length=case.prompt_length),
        stop_reason=ended,  # an end of sequence on the last token of the budget is one to the engine alone
    )
    assert trace == simulated, f"{case}: the engine's Trace {trace} is not the simulator's {simulated}"
    return trace


def mismatch(cases: Sequence[Case]) -> str | None:
    """The first thing that is wrong in ``cases``, or ``None``. A crash is as wrong as a false text."""
    for case in cases:
        try:
            check(case)
        except Exception as error:  # noqa: BLE001 — a planted bug may surface as any error
            return f"{type(error).__name__}: {error}"
    return None
