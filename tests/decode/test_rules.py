"""The rules themselves, over 20,000 fixed seeds: the law of what they write, and how often they accept."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from spd_lib.decode import noise
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.decode.verify import Draft, Gumbel, Rejection, Rule, Ruling
from spd_lib.draft import Proposal

from .laws import SEEDS, Chain, FromFlight, Words, counted, critical, excess, use

CPU = torch.device("cpu")
P = torch.tensor([0.30, 0.22, 0.15, 0.12, 0.10, 0.07, 0.04, 0.0])
DRAFT_IDS = torch.tensor([5, 0, 2, 1, 7, 3])  # in no order, two tokens missing, one that the target rules out
Q = torch.tensor([0.25, 0.20, 0.20, 0.15, 0.10, 0.10])
POSITION = 3

M = torch.tensor(  # the law of the next token after each of four tokens
    [[0.40, 0.30, 0.20, 0.10], [0.10, 0.50, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25], [0.55, 0.10, 0.05, 0.30]]
)
DRAFTED = torch.tensor(  # what the drafter takes it for
    [[0.20, 0.50, 0.20, 0.10], [0.40, 0.20, 0.20, 0.20], [0.10, 0.20, 0.30, 0.40], [0.60, 0.20, 0.10, 0.10]]
)
TEXT_LAW = torch.einsum("a,ab,bc->abc", M[0], M, M).flatten()  # three tokens after token 0


class ResamplesFromTarget(Rejection):
    """Wrong: a rejected draft is replaced by a draw from P, not from the residual."""

    def judge(self, scores: Tensor, draft: Draft, position: int) -> Ruling:
        ruling = super().judge(scores, draft, position)
        return ruling if ruling.accepted else Ruling(False, self.choose(scores, position))


class DraftsTheMode(Rejection):
    """Wrong: the draft is the likeliest token, judged as if it had been drawn (the trap of multi-candidate drafts)."""

    def draw(self, ids: Tensor, scores: Tensor, position: int) -> Draft:
        drawn = super().draw(ids, scores, position)
        return Draft(int(ids[scores.argmax()]), ids=drawn.ids, probabilities=drawn.probabilities)


class KeepsLikelyDrafts(Gumbel):
    """Wrong: a draft stays if the target finds it likely."""

    def judge(self, scores: Tensor, draft: Draft, position: int) -> Ruling:
        ruling = super().judge(scores, draft, position)
        return Ruling(True, draft.token_id) if scores[draft.token_id] > -2 else ruling


class ForgetsThePosition(Gumbel):
    """Wrong: the same noise at every position."""

    def __init__(self, *key) -> None:
        super().__init__(*key)
        noise_of = self._noise
        self._noise = lambda position: noise_of(0)


def make(rule: type[Rule], seed: int, vocab_size: int, row: int = 0) -> Rule:
    return rule(seed, row, vocab_size, CPU) if issubclass(rule, Gumbel) else rule(seed, row)


@pytest.fixture
def table(monkeypatch):
    use(Words(SEEDS), monkeypatch)


@cache
def one_position(rule: type[Rule]) -> tuple[Tensor, float]:
    """How often each of eight tokens was committed at one position, and the share of drafts accepted."""
    target, proposal = P.log(), Q.log()
    rulings = []
    for seed in SEEDS:
        made = make(rule, seed, len(P))
        rulings.append(made.judge(target, made.draw(DRAFT_IDS, proposal, POSITION), POSITION))
    accepted = sum(ruling.accepted for ruling in rulings) / len(rulings)
    return counted([[ruling.token_id] for ruling in rulings], len(P), 1), accepted


def texts(rule: type[Rule], num_stages: int, seeds: range = SEEDS) -> Tensor:
    """How often the engine wrote each text of three tokens over four ids."""
    ids, proposals = torch.arange(4), [Proposal(torch.arange(4), row.log()) for row in DRAFTED]
    uniform = Proposal(ids, torch.zeros(4))
    # Sees the newest token, and whether it is alone in the pipe; a drafter may.
    drafter = FromFlight(lambda flight: uniform if flight.fill == 1 else proposals[flight.ids[-1]])
    chain, written = Chain(M.log(), num_stages), []
    for seed in seeds:
        sampler = Sampler(make(rule, seed, 4), vocab_size=4, device=CPU)
        written.append(decode(chain, drafter, sampler, StopRule(1, 3), [0]).token_ids)
    return counted(written, 4, 3)


class Remembers:
    """Avoids at each position what it has seen there before a flush. It should not, and still must not bend the law."""

    def begin(self, pipeline: object, prompt_ids: list[int]) -> None:
        self.seen: dict[int, int] = {}

    def propose(self, flight) -> Proposal:
        self.seen |= {token.position: token.token_id for token in flight.tokens}
        logits = torch.zeros(4)
        if flight.next_position in self.seen:
            logits[self.seen[flight.next_position]] = -3.0
        return Proposal(torch.arange(4), logits)

    def rollback(self, to: int) -> None:
        """It does not listen."""


def full_proposal() -> Tensor:
    """Q over all eight tokens."""
    return torch.zeros(len(P)).scatter(0, DRAFT_IDS, Q)


def gumbel_acceptance(p: Tensor, q: Tensor) -> float:
    """Σᵢ 1 / Σⱼ max(Pⱼ/Pᵢ, Qⱼ/Qᵢ), over the tokens that both can write."""
    both = [i for i in range(len(p)) if p[i] > 0 and q[i] > 0]
    return sum(1 / float(torch.maximum(p / p[i], q / q[i]).sum()) for i in both)


def test_critical_values():
    # Tables give 29.88 for 7 degrees of freedom and 114.1 for 63.
    assert critical(7) == pytest.approx(29.88, rel=0.02)
    assert critical(63) == pytest.approx(114.1, rel=0.02)


@pytest.mark.parametrize("rule", [Gumbel, Rejection])
def test_one_position_follows_the_target(table, rule):
    counts, _ = one_position(rule)
    assert excess(counts, P) < 1


@pytest.mark.parametrize("rule", [ResamplesFromTarget, DraftsTheMode, KeepsLikelyDrafts])
def test_a_wrong_rule_is_found_out_at_one_position(table, rule):
    counts, _ = one_position(rule)
    assert excess(counts, P) > 2


@pytest.mark.parametrize(("rule", "num_stages"), [(Gumbel, 2), (Rejection, 2), (Rejection, 3)])
def test_neighbouring_tokens_follow_the_joint_law(table, rule, num_stages):
    assert excess(texts(rule, num_stages), TEXT_LAW) < 1


@pytest.mark.parametrize("rule", [ResamplesFromTarget, ForgetsThePosition])
def test_a_wrong_rule_is_found_out_in_a_text(table, rule):
    assert excess(texts(rule, 2, SEEDS[:5_000]), TEXT_LAW) > 2


@pytest.mark.parametrize("rule", [Gumbel, Rejection])
@pytest.mark.parametrize("other", ["row", "seed"])
def test_draws_of_neighbouring_rows_and_seeds_are_independent(monkeypatch, rule, other):
    use(Words(range(20_001), rows=(0, 1)), monkeypatch)
    scores, law = P[:4].log(), P[:4] / P[:4].sum()
    pairs = []
    for seed in SEEDS:
        second = make(rule, seed, 4, row=1) if other == "row" else make(rule, seed + 1, 4)
        pairs.append((make(rule, seed, 4).choose(scores, POSITION), second.choose(scores, POSITION)))
    assert excess(counted(pairs, 4, 2), torch.outer(law, law).flatten()) < 1


def test_rejection_accepts_as_often_as_any_exact_rule_can(table):
    total_variation = float((P - full_proposal()).clamp_min(0).sum())
    _, accepted = one_position(Rejection)
    assert abs(accepted - (1 - total_variation)) < 4 * 0.5 / len(SEEDS) ** 0.5


def test_gumbel_accepts_as_often_as_the_formula_says(table):
    q = full_proposal()
    total_variation = float((P - q).clamp_min(0).sum())
    expected = gumbel_acceptance(P, q)
    _, accepted = one_position(Gumbel)
    assert abs(accepted - expected) < 4 * 0.5 / len(SEEDS) ** 0.5
    assert (1 - total_variation) / (1 + total_variation) <= expected <= 1 - total_variation


def large_logits(first: float) -> Tensor:
    """Two tokens share the text, ``first`` and 1 − ``first``, among a quarter of a million."""
    logits = torch.full((250_000,), -60.0)
    logits[17], logits[200_000] = torch.tensor([first, 1 - first]).log()
    return logits


def test_a_large_vocabulary_keeps_its_small_residual():
    # TV(P, Q) = 0.02 is less than float32's eps × 250,000; what replaces a rejected draft is token 17 all the same.
    ids, target, proposal = torch.arange(250_000), large_logits(0.52), large_logits(0.50)
    judged = [seed for seed in range(2_000) if noise.uniform(seed, 0, POSITION, noise.ACCEPT) > 0.9601][:20]
    assert len(judged) == 20
    q = proposal.double().softmax(0)
    for seed in judged:
        ruling = Rejection(seed, 0).judge(target, Draft(200_000, ids=ids, probabilities=q), POSITION)
        assert ruling == Ruling(False, 17)
    assert Rejection(judged[0], 0).judge(target, Draft(17, ids=ids, probabilities=q), POSITION).accepted


def test_a_drafter_that_remembers_flushed_tokens_bends_nothing(table):
    """A position that is drafted again after a flush has dice of its own."""
    chain, written = Chain(M.log(), 4), []
    for seed in SEEDS[:6_000]:
        sampler = Sampler(Rejection(seed, 0), vocab_size=4, device=CPU)
        written.append(decode(chain, Remembers(), sampler, StopRule(1, 6), [0]).token_ids[:3])
    assert excess(counted(written, 4, 3), TEXT_LAW) < 1


@pytest.mark.parametrize("rule", [Gumbel, Rejection])
def test_a_perfect_drafter_is_never_rejected(rule):
    ids = torch.arange(50_000)
    logits = torch.randn(len(ids), generator=torch.Generator().manual_seed(0)) * 3
    for seed in range(25):
        made = make(rule, seed, len(ids))
        assert made.judge(logits, made.draw(ids, logits, POSITION), POSITION).accepted


def test_an_id_proposed_twice_counts_twice(table):
    ids, proposal = torch.tensor([0, 1, 0]), torch.tensor([0.3, 0.4, 0.3]).log()
    law, written = torch.tensor([0.5, 0.3, 0.2]), []
    for seed in SEEDS:
        made = Rejection(seed, 0)
        written.append([made.judge(law.log(), made.draw(ids, proposal, POSITION), POSITION).token_id])
    assert excess(counted(written, 3, 1), law) < 1
