"""The shipped drafter on SmolLM2: what replay says is what the engine does."""

from __future__ import annotations

import pytest

from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pretrained import shipped_module
from spd_lib.evaluate.acceptance import fit
from spd_lib.evaluate.questions import load_questions
from spd_lib.evaluate.texts import Text, write_texts
from spd_lib.target.load import Target, load
from tests.bench.replay import SAMPLINGS, STAGES, exact_case, rejection

NEW_TOKENS = 24


@pytest.fixture(scope="module")
def target() -> Target:
    return load("smollm2", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def module(target: Target) -> PipelineDraftModule:
    return fit(shipped_module("smollm2"), target)


@pytest.fixture(scope="module")
def texts(target: Target, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Text]]:
    """Answers to three questions, one of each category, written anew."""
    questions = load_questions()[::36]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPD_CACHE", str(tmp_path_factory.mktemp("cache")))
        return {name: write_texts(target, questions, sampling, NEW_TOKENS) for name, sampling in SAMPLINGS.items()}


@pytest.mark.parametrize("num_stages", STAGES)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_replay_equals_the_engine(target, module, texts, name: str, num_stages: int) -> None:
    cases = [exact_case(target, module, text, SAMPLINGS[name], num_stages) for text in texts[name]]
    assert len(cases) == 3 and all(case["same_text"] for case in cases)
    # A near-tie may fall the other way; nothing else may.
    assert all(case["equal"] or case["near_ties"] for case in cases)
    assert sum(case["near_ties"] for case in cases) <= 2
    assert 0.2 < sum(case["accepted"] for case in cases) / sum(case["judged"] for case in cases) < 0.9


def test_rejection_is_expected_as_often_as_it_happens(target, module, texts) -> None:
    drawn = rejection(target, module, texts["gumbel"], 4)
    assert drawn["variance"] > 3 and abs(drawn["z"]) < 4
