"""Replay against the engine on SmolLM2, ``python -m tests.bench.replay``: the same drafts judged alike, token by token.

Greedy and Gumbel texts must replay exactly, but for drafts whose first two choices are nearly tied. Under rejection
the engine throws dice of its own, so its acceptances are compared with the sum of the chances that replay gives them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from spd_lib.core.plan import even
from spd_lib.core.staircase import row_kinds
from spd_lib.core.trace import Trace
from spd_lib.decode.engine import decode
from spd_lib.decode.generate import as_ids
from spd_lib.decode.sampling import Sampler, make_rule, warpers
from spd_lib.decode.stopping import StopRule
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.draft.pretrained import shipped_module
from spd_lib.evaluate.acceptance import fit
from spd_lib.evaluate.questions import load_questions
from spd_lib.evaluate.replay import Replay, trace_of, walk
from spd_lib.evaluate.texts import Sampling, Text, write_texts
from spd_lib.target import Decoder, Pipeline, Target
from spd_lib.target.fingerprint import weights_digest
from spd_lib.target.load import load

from ..evaluate.learnt import verdicts
from ..results import provenance, save

STAGES = (3, 4, 8)
EVERY = 9  # of the 108 questions: 12, four of each category
NEW_TOKENS = 64
SAMPLINGS = {"greedy": Sampling(), "gumbel": Sampling(1.0, seed=0)}


def run(target: Target, module: PipelineDraftModule, text: Text, sampler: Sampler, num_stages: int) -> Trace:
    """The engine's Trace for the prompt and the budget of ``text``."""
    eos = as_ids(target.model.generation_config.eos_token_id)
    stop = StopRule(len(text.prompt_ids), text.budget, eos)
    return decode(Pipeline(target.model, num_stages), PipelineDrafter(module), sampler, stop, list(text.prompt_ids))


def exact_case(
    target: Target, module: PipelineDraftModule, text: Text, sampling: Sampling, num_stages: int
) -> dict[str, Any]:
    """Engine and replay of one text; "equal" covers the text, every verdict and the whole Trace."""
    decoder = Decoder(target.model)
    plan = even(decoder.num_layers, num_stages)
    trace = run(target, module, text, sampling.sampler(text.row, decoder.vocab_size, decoder.device), num_stages)
    replay = Replay(decoder, module, text, sampling)
    judged = list(replay.judged(plan))
    same = [each.accepted for each in judged] == verdicts(trace) and trace_of(text, judged, num_stages) == trace
    return {
        "n": num_stages,
        "question": text.question_id,
        "judged": len(judged),
        "accepted": sum(verdicts(trace)),
        "near_ties": replay.near_ties(plan),
        "same_text": tuple(trace.token_ids) == text.new_ids,
        "equal": same and tuple(trace.token_ids) == text.new_ids,
    }


def rejection_case(target: Target, module: PipelineDraftModule, text: Text, num_stages: int) -> dict[str, float]:
    """Acceptances of an engine run under rejection, and their expectation and variance by the replay of its text."""
    decoder, sampling = Decoder(target.model), SAMPLINGS["gumbel"]
    rule = make_rule("rejection", seed=sampling.seed, row=text.row, vocab_size=decoder.vocab_size, device=target.device)
    chain = warpers(sampling.temperature, None, None)
    sampler = Sampler(rule, chain, vocab_size=decoder.vocab_size, device=target.device)
    trace = run(target, module, text, sampler, num_stages)
    replay = Replay(decoder, module, replace(text, new_ids=tuple(trace.token_ids)), sampling, "rejection")
    flags, plan = verdicts(trace), even(decoder.num_layers, num_stages)
    kinds = [row_kinds(plan, module.config.anchors, fill) for fill in range(1, num_stages + 1)]
    thrown = iter(flags)
    judged = walk(len(trace.token_ids), num_stages, lambda index, fill: next(thrown))
    chances = [float(replay.drafts(kinds[each.fill - 1]).chance[each.index - 1]) for each in judged]
    return {"accepted": sum(flags), "expected": sum(chances), "variance": sum(p * (1 - p) for p in chances)}


def rejection(target: Target, module: PipelineDraftModule, texts: list[Text], num_stages: int) -> dict[str, Any]:
    """All texts together: how far acceptances are from their expectation, in standard deviations."""
    cases = [
        rejection_case(target, module, text, num_stages) for text in tqdm(texts, desc=f"rejection, n={num_stages}")
    ]
    total = {key: sum(case[key] for case in cases) for key in cases[0]}
    z = (total["accepted"] - total["expected"]) / total["variance"] ** 0.5
    return {"n": num_stages, **{key: round(value, 3) for key, value in total.items()}, "z": round(z, 3)}


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if a text or a verdict differs without a near-tie, or acceptances under rejection are off by 4 σ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/replay-smollm2-cpu.json"))
    out = parser.parse_args(argv).out
    torch.set_num_threads(1)
    target, module = load("smollm2", device="cpu", dtype="float32"), shipped_module()
    digest, questions = weights_digest(module), load_questions()[::EVERY]
    module = fit(module, target)
    texts = {name: write_texts(target, questions, sampling, NEW_TOKENS) for name, sampling in SAMPLINGS.items()}
    cells = [(name, text, n) for name in SAMPLINGS for text in texts[name] for n in STAGES]
    cases = [
        {"sampling": name, **exact_case(target, module, text, SAMPLINGS[name], n)}
        for name, text, n in tqdm(cells, unit="text")
    ]
    drawn = [rejection(target, module, texts["gumbel"], n) for n in STAGES]
    wrong = [case for case in cases if not case["equal"] and not (case["same_text"] and case["near_ties"])]
    result = provenance("python -m tests.bench.replay") | {
        "target": target.name,
        "dtype": "float32",
        "drafter": digest,
        "new_tokens": NEW_TOKENS,
        "texts": len(cases),
        "equal": sum(case["equal"] for case in cases),
        "near_ties": sum(case["near_ties"] for case in cases),
        "rejection": drawn,
        "cases": cases,
    }
    save(result, out)
    print(f"{result['equal']} of {len(cases)} texts equal, {result['near_ties']} near-ties, rejection: {drawn}")
    return 1 if wrong or any(abs(row["z"]) > 4 for row in drawn) else 0


if __name__ == "__main__":
    sys.exit(main())
