"""Drafters without weights."""

from __future__ import annotations

import pytest
import torch

from spd_lib.draft import NAMED_DRAFTERS, Oracle, PromptLookup, Proposal, Random, make_drafter
from spd_lib.target import Flight, InFlight, Pipeline

from ..families import VOCAB, prompt_of, reference_of, tiny

PROMPT = prompt_of(5, 1)


def drafted(drafter, text: list[int], pipeline: Pipeline | None = None) -> list[int]:
    """What is proposed for each token of ``text`` when all tokens before it were right."""
    pipeline = pipeline or Pipeline(tiny("llama"), 2)
    pipeline.prefill(PROMPT)
    drafter.begin(pipeline, PROMPT)
    found = []
    for count in range(len(text)):
        proposal = drafter.propose(Flight(PROMPT + text[:count]))
        logits = torch.zeros(len(proposal.ids)) if proposal.logits is None else proposal.logits
        found.append(int(proposal.ids[logits.argmax()]))
    return found


@pytest.fixture(scope="module")
def text() -> list[int]:
    return list(reference_of("llama", tuple(PROMPT), 40))


def test_oracle_finds_the_models_own_text(text: list[int]) -> None:
    assert drafted(Oracle(), text) == text


def test_oracle_reads_without_disturbing_the_pipeline(text: list[int]) -> None:
    """It runs its own single-stage pipeline; the one that decodes stays where it was."""
    pipeline = Pipeline(tiny("llama"), 3)
    drafted(Oracle(), text, pipeline)
    assert [stage.state.length for stage in pipeline.stages] == [len(PROMPT)] * 3


def test_oracle_errs_to_order(text: list[int]) -> None:
    """Always, at named places, or in a share of the places; a wrong token is the right one plus one."""
    wrong = [(token_id + 1) % VOCAB for token_id in text]
    assert drafted(Oracle(1.0), text) == wrong
    assert drafted(Oracle(wrong_at={3, 5}), text) == [wrong[i] if i in (3, 5) else text[i] for i in range(40)]
    some = drafted(Oracle(0.3), text)
    assert some == drafted(Oracle(0.3), text)
    assert 4 <= sum(a != b for a, b in zip(some, text, strict=True)) <= 20
    assert some != drafted(Oracle(0.3, seed=1), text)


def test_oracle_error_rate_is_the_share_of_errors() -> None:
    """Within three standard deviations over 4,000 places."""
    oracle = Oracle(0.3)
    share = sum(oracle._errs(index) for index in range(4_000)) / 4_000
    assert abs(share - 0.3) < 3 * (0.3 * 0.7 / 4_000) ** 0.5


def test_oracle_believes_the_text_it_is_given() -> None:
    """And guesses, saying so, when that text is over."""
    oracle = Oracle(text=[9, 8])
    assert drafted(oracle, [9, 8, 7]) == [9, 8, 0]
    assert not oracle.propose(Flight([*PROMPT, 9])).guess
    assert oracle.propose(Flight([*PROMPT, 9, 8])).guess


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_oracle_refuses_impossible_rates(rate: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Oracle(rate)


def test_random_depends_on_seed_and_position_alone(text: list[int]) -> None:
    """The same proposal at the same place after another prefix; another at another place or with another seed."""
    one, two, other = Random(), Random(), Random(seed=1)
    for drafter in (one, two, other):
        drafter.begin(Pipeline(tiny("llama"), 1), PROMPT)
    first, again = one.propose(Flight([1, 2, 3])), two.propose(Flight([4, 5, 6]))
    assert first.ids.tolist() == list(range(VOCAB))
    assert torch.equal(first.logits, again.logits)
    assert not torch.equal(first.logits, one.propose(Flight([1, 2])).logits)
    assert not torch.equal(first.logits, other.propose(Flight([1, 2, 3])).logits)


@pytest.mark.parametrize(
    ("ids", "proposed", "guess"),
    [
        ([1, 2, 3, 4, 9, 2, 3, 4], 9, False),  # three tokens stood before
        ([7, 4, 1, 4, 5, 4], 5, False),  # the last place, not the first
        ([1, 2, 3, 8, 3, 9, 2, 3], 8, False),  # two tokens beat a later single one
        ([5, 5], 5, False),
        ([5, 5, 5], 5, False),
        ([1, 2, 3], 3, True),  # nothing stood before
        ([4], 4, True),
    ],
)
def test_prompt_lookup(ids: list[int], proposed: int, guess: bool) -> None:
    proposal = PromptLookup().propose(Flight(ids))
    assert (proposal.ids.tolist(), proposal.logits, proposal.guess) == ([proposed], None, guess)


def test_prompt_lookup_length() -> None:
    """With single tokens only, the later place wins."""
    assert PromptLookup(1).propose(Flight([1, 2, 3, 8, 3, 9, 2, 3])).ids.tolist() == [9]
    with pytest.raises(ValueError, match="at least 1"):
        PromptLookup(0)


def test_prompt_lookup_sees_what_is_in_flight() -> None:
    """It matches on the drafts too, not on the committed text only, and forgets what was thrown away."""
    flight = Flight([1, 2, 9, 4])
    flight.admit(InFlight(1, 4, 0))
    flight.admit(InFlight(2, 5, 1))
    assert PromptLookup().propose(flight).ids.tolist() == [9]
    flight.restart(InFlight(4, 4, 2))
    assert PromptLookup().propose(flight).ids.tolist() == [4]


@pytest.mark.parametrize(
    ("ids", "logits", "message"),
    [
        (torch.tensor([]), None, r"shape \[k\]"),
        (torch.tensor([[1]]), None, r"shape \[k\]"),
        (torch.tensor([1, 2]), None, "point mass"),
        (torch.tensor([1, 2]), torch.zeros(3), "do not match"),
    ],
)
def test_malformed_proposals(ids: torch.Tensor, logits: torch.Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proposal(ids, logits)


def test_drafters_by_name() -> None:
    """Known names, objects as they are, and a message that lists what is known."""
    assert isinstance(make_drafter("prompt-lookup"), PromptLookup)
    mine = Oracle()
    assert make_drafter(mine) is mine
    with pytest.raises(ValueError) as refusal:
        make_drafter("prompt_lookup")
    assert all(name in str(refusal.value) for name in NAMED_DRAFTERS)
    with pytest.raises(TypeError, match="int is not a drafter: it has no begin, propose, rollback"):
        make_drafter(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"PromptLookup is a class; give an object: PromptLookup\(\)"):
        make_drafter(PromptLookup)  # type: ignore[arg-type]
