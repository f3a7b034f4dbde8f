"""The shipped drafter on SmolLM2: what replay says is what the engine does."""

from __future__ import annotations

import pytest

from spd_lib.core.plan import make_plan
from spd_lib.decode.engine import decode
from spd_lib.decode.stopping import StopRule
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.draft.shipped import shipped_module
from spd_lib.evaluate.acceptance import fit
from spd_lib.evaluate.questions import load_questions
from spd_lib.evaluate.replay import Replay, trace_of
from spd_lib.evaluate.texts import Sampling, Text, write_texts
from spd_lib.target.layers import Decoder
from spd_lib.target.load import Target, load
from spd_lib.target.pipeline import Pipeline

from .learnt import verdicts

NEW_TOKENS = 24
SAMPLINGS = {"greedy": Sampling(), "gumbel": Sampling(1.0, seed=0)}


@pytest.fixture(scope="module")
def target() -> Target:
    return load("smollm2", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def drafter(target: Target) -> PipelineDraftModule:
    module = shipped_module("smollm2")
    fit(module, target)
    return module


@pytest.fixture(scope="module")
def texts(target: Target, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Text]]:
    """Answers to three questions, one of each category, written anew."""
    questions = load_questions()[::36]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPD_CACHE", str(tmp_path_factory.mktemp("cache")))
        return {name: write_texts(target, questions, sampling, NEW_TOKENS) for name, sampling in SAMPLINGS.items()}


@pytest.mark.parametrize("num_stages", [3, 4, 8])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_replay_equals_the_engine(target, drafter, texts, name: str, num_stages: int) -> None:
    sampling, decoder = SAMPLINGS[name], Decoder(target.model)
    plan = make_plan("even", decoder.num_layers, num_stages, 0.0)
    eos = (target.model.generation_config.eos_token_id,)
    pipeline, flags, near = Pipeline(target.model, num_stages), [], 0
    assert len(texts[name]) == 3
    for text in texts[name]:
        replay = Replay(decoder, drafter, text, sampling)
        judged = list(replay.judged(plan))
        sampler = sampling.sampler(text.row, decoder.vocab_size, decoder.device)
        stop = StopRule(len(text.prompt_ids), text.budget, eos)
        trace = decode(pipeline, PipelineDrafter(drafter), sampler, stop, list(text.prompt_ids))
        assert tuple(trace.token_ids) == text.new_ids
        ties = replay.near_ties(plan)
        if not ties:  # a near-tie may fall the other way; nothing else may
            assert [each.accepted for each in judged] == verdicts(trace)
            assert trace_of(text, judged, num_stages) == trace
        near += ties
        flags += verdicts(trace)
    assert near <= 2
    assert 0.2 < sum(flags) / len(flags) < 0.9
