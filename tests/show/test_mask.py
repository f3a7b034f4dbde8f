"""The training mask on the page is the one that training uses, and its twin is what a run offers."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from spd_lib.core.plan import Plan, balanced, even
from spd_lib.core.staircase import anchors_passed
from spd_lib.draft.config import DraftConfig
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.show import mask_explorer
from spd_lib.show.mask import DIGITS, UNSEEN, Scene

ANCHORS = (0, 4, 8, 12, 16, 20, 24, 30)
TOKENS = 9


def read_by(module: PipelineDraftModule, scene: Scene, query: int) -> str:
    """What the training forward really reads at ``query``, from its gradient: the deepest anchor of each token."""
    states = torch.randn(len(ANCHORS), 1, TOKENS, 8, requires_grad=True)
    kinds = [anchors_passed(ANCHORS, scene.plan.layers_passed(depth)) for depth in range(scene.fill)]
    module(states, kinds, window=scene.window)[query].square().sum().backward()
    assert states.grad is not None
    moved = states.grad[:, 0].abs().amax(dim=-1) > 0  # [anchors, TOKENS]
    assert not moved[:, query + 1 :].any()
    deepest = [moved[:, key].nonzero().flatten().tolist() for key in range(query + 1)]
    return "".join(DIGITS[max(anchors)] if anchors else UNSEEN for anchors in deepest)


@pytest.mark.parametrize("window", [TOKENS, 3])
@pytest.mark.parametrize(
    ("plan", "fill"), [(even(30, 4), 1), (even(30, 4), 3), (even(30, 8), 8), (balanced(30, 5, 8), 5)]
)
def test_the_mask_is_what_the_training_forward_reads(plan: Plan, fill: int, window: int) -> None:
    torch.manual_seed(0)
    config = DraftConfig("tiny", "", 30, 20, 8, 16, 2, 1, 4, 1, ANCHORS, 20, 64, 10_000.0, 1e-5)
    module = PipelineDraftModule(config)
    scene = Scene(plan, fill, window)
    for query in range(TOKENS):
        assert scene.mask_row(ANCHORS, query) == read_by(module, scene, query)


def test_the_run_offers_the_row_of_the_mask() -> None:
    for state in mask_explorer(30, ANCHORS, 8.0).states.values():
        for row, run in zip(state.mask, state.run, strict=True):
            offered = {run[place]: run[place + 1] for place in range(0, len(run), 2) if run[place] != "-"}
            assert "".join(offered[DIGITS[key]] for key in range(len(row))) == row
            assert len(run) >= 2 * state.num_stages


def test_every_choice_has_a_state_but_a_pipe_of_n_stages_holds_n_tokens() -> None:
    explorer = mask_explorer(30, ANCHORS, 8.0)
    choices = product(*explorer.controls.values())
    assert set(explorer.states) == {choice for choice in choices if int(choice[2]) <= int(choice[0])}
    assert mask_explorer(30, ANCHORS, 8.0, stages=(2,)).start == ("2", "even", "2", "12")
    assert len(explorer.html()) < 60_000


def test_the_characters_are_the_table() -> None:
    assert "query  7  7 7 7 7 7 4 2 0" in str(mask_explorer(30, ANCHORS, 8.0))


def test_senseless_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="between 4 and 36"):
        mask_explorer(30, ANCHORS, 8.0, tokens=40)
