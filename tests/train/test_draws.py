"""Moments of the pipe follow the law of judged drafts; batches cover an epoch."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
import torch.nn.functional as F

from spd_lib.train.draws import MomentLaw, batches
from spd_lib.train.loss import draft_loss
from tests.train.chat import conversations

LAW = MomentLaw(num_layers=30, head_cost=8.0, window=256)


def test_fills_come_as_often_as_drafts_are_judged() -> None:
    dice = random.Random(0)
    moments = [LAW.draw(dice) for _ in range(20_000)]
    deep = [moment for moment in moments if moment.plan.num_stages == 16]
    shares = Counter(moment.fill for moment in deep)
    for fill in (1, 2, 3):
        expected = 0.9 * 0.4 * 0.6 ** (fill - 1)
        assert abs(shares[fill] / len(deep) - expected) < 0.04
    full = sum(moment.fill == moment.plan.num_stages for moment in moments) / len(moments)
    assert full >= LAW.full_share
    assert {moment.plan.num_stages for moment in moments} == set(range(2, 17))
    assert {moment.plan.name for moment in moments} == {"even", "balanced", "random"}
    assert all(moment.plan.num_layers == 30 for moment in moments)
    assert {moment.window for moment in moments} >= set(range(32, 257))
    assert sum(moment.window == 256 for moment in moments) > 0.45 * len(moments)


def test_a_short_model_has_no_more_stages_than_layers() -> None:
    law = MomentLaw(num_layers=3, head_cost=1.0, window=16)
    dice = random.Random(0)
    drawn = [law.draw(dice) for _ in range(200)]
    assert {moment.plan.num_stages for moment in drawn} == {2, 3}
    assert {moment.window for moment in drawn} == {16}


def test_an_epoch_has_every_text_once() -> None:
    chats = conversations(24)
    made = list(batches(chats, 90, "3"))
    assert sorted(map(id, (chat for batch in made for chat in batch))) == sorted(map(id, chats))
    assert all(len(batch) * max(len(chat.ids) for chat in batch) <= 90 for batch in made)
    assert [list(map(id, batch)) for batch in batches(chats, 90, "3")] == [list(map(id, batch)) for batch in made]
    assert [list(map(id, batch)) for batch in batches(chats, 90, "4")] != [list(map(id, batch)) for batch in made]
    assert all(len(batch) == 1 for batch in batches(chats, 1, "3"))


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("asked", [1, 300])
def test_the_loss_is_torchs_own(softcap: float | None, asked: int) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(asked, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    known, target_weight = torch.randn(asked, 16), torch.randn(50, 16)
    loss = draft_loss(hidden, weight, known, target_weight, softcap)
    found = torch.autograd.grad(2 * loss, (hidden, weight))
    wanted = known @ target_weight.T
    wanted = wanted if softcap is None else torch.tanh(wanted / softcap) * softcap
    own = F.kl_div(
        F.log_softmax(hidden @ weight.T, -1), F.log_softmax(wanted, -1), reduction="batchmean", log_target=True
    )
    torch.testing.assert_close(loss, own)
    for ours, theirs in zip(found, torch.autograd.grad(2 * own, (hidden, weight)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_nothing_asked_is_an_error_and_no_zero() -> None:
    with pytest.raises(ValueError, match="no answer tokens"):
        draft_loss(torch.zeros(0, 4), torch.zeros(5, 4), torch.zeros(0, 4), torch.zeros(5, 4))
