"""When a text ends: on committed tokens alone, wherever in the pipe the deciding token is."""

from __future__ import annotations

import pytest
import torch
from transformers import StoppingCriteria

import spd_lib
from spd_lib.core import metrics
from spd_lib.draft import Oracle, Proposal
from spd_lib.target import load

from ..families import VOCAB, reference_of
from .laws import FromFlight
from .texts import FAMILY, MODEL, PROMPT, TEXT, TOKENS, output_of, tokenizer, written


def always(token_id: int) -> FromFlight:
    return FromFlight(lambda flight: Proposal(torch.tensor([token_id])))


def test_the_reference_text_has_no_repeats():
    assert len(set(TEXT)) == TOKENS  # so each of its tokens can serve as the end of sequence


@pytest.mark.parametrize("num_stages", [1, 2, 4])
@pytest.mark.parametrize("end", range(TOKENS))
def test_end_of_sequence_at_every_index(num_stages, end):
    """As a draft that is right, as the correction of a wrong one, and right behind a correction."""
    for wrong_at in ((), (end,), (end - 1,), range(TOKENS)):
        drafter = Oracle(wrong_at=wrong_at)
        output = output_of(PROMPT, drafter=drafter, num_stages=num_stages, eos_token_id=TEXT[end])
        (trace,) = output.traces
        assert trace.token_ids == TEXT[: end + 1] and trace.stop_reason == "eos"
        assert output.sequences[0].tolist() == PROMPT + TEXT[: end + 1]
        expected = metrics.expected_cycles(num_stages, end + 1, metrics.num_refills(trace))
        assert metrics.num_cycles(trace) == expected


def test_several_end_of_sequence_ids():
    assert written(eos_token_id=[TEXT[6], TEXT[3], VOCAB + 5]) == TEXT[:4]
    assert written(eos_token_id=torch.tensor([TEXT[2]])) == TEXT[:3]
    assert written(eos_token_id=(TEXT[0],)) == TEXT[:1]
    assert written(eos_token_id=[]) == TEXT


def test_end_of_sequence_in_the_prompt_is_nothing():
    assert written(eos_token_id=PROMPT[-1]) == TEXT


@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_a_draft_of_the_end_of_sequence_neither_stops_nor_asserts(num_stages):
    wrong_eos = next(token_id for token_id in range(VOCAB) if token_id not in TEXT)
    assert written(eos_token_id=wrong_eos, drafter=always(wrong_eos), num_stages=num_stages) == TEXT
    # Right at one place and drafted everywhere before it, too.
    assert written(eos_token_id=TEXT[7], drafter=always(TEXT[7]), num_stages=num_stages) == TEXT[:8]


def test_the_models_own_end_of_sequence_is_the_default(monkeypatch):
    monkeypatch.setattr(MODEL.generation_config, "eos_token_id", [TEXT[4], TEXT[8]])
    assert written() == TEXT[:5]
    assert written(eos_token_id=TEXT[8]) == TEXT[:9]
    assert written(eos_token_id=[]) == TEXT


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("num_stages", [1, 4])
def test_the_budget_is_exact(count, num_stages):
    (trace,) = output_of(PROMPT, max_new_tokens=count, num_stages=num_stages).traces
    assert trace.token_ids == TEXT[:count] and trace.stop_reason == "budget"
    assert max(token.position for token in trace.tokens) == len(PROMPT) + count - 1  # nothing is drafted beyond it


def test_end_of_sequence_as_the_last_token_of_the_budget_is_an_end():
    (trace,) = output_of(PROMPT, eos_token_id=TEXT[3], max_new_tokens=4).traces
    assert trace.stop_reason == "eos"


@pytest.mark.parametrize("count", [0, -3, 2.5, float("nan")])
def test_a_budget_that_is_none(count):
    with pytest.raises(ValueError, match=f"max_new_tokens must be a whole number, (at least 1, )?got {count}"):
        written(max_new_tokens=count)


# --- stop strings


def letters(*token_ids: int) -> str:
    return tokenizer().decode(list(token_ids))


def test_the_tokenizer_of_these_tests():
    assert letters(*TEXT) == "".join(tokenizer().convert_ids_to_tokens(TEXT))
    assert tokenizer()(letters(*TEXT))["input_ids"] == TEXT


@pytest.mark.parametrize("num_stages", [1, 3])
@pytest.mark.parametrize("last", range(1, TOKENS))
def test_a_stop_string_across_two_tokens(num_stages, last):
    """Half of one token and half of the next; the text keeps both whole, as transformers does."""
    string = letters(TEXT[last - 1])[1] + letters(TEXT[last])[0]
    expected = letters(*TEXT).find(string, 0)
    end = expected // 2 + 2 if expected % 2 else expected // 2 + 1
    output = output_of(PROMPT, stop_strings=string, tokenizer=tokenizer(), num_stages=num_stages)
    assert output.traces[0].token_ids == TEXT[:end] and output.traces[0].stop_reason == "stop string"


def test_stop_strings_of_one_two_and_three_tokens():
    for first, last in ((4, 4), (4, 5), (4, 6)):
        strings = ["zz", letters(*TEXT[first : last + 1])]
        assert written(stop_strings=strings, tokenizer=tokenizer()) == TEXT[: last + 1]


def test_a_stop_string_in_the_first_token_and_in_the_prompt():
    assert written(stop_strings=letters(TEXT[0]), tokenizer=tokenizer()) == TEXT[:1]
    assert written(stop_strings=letters(*PROMPT[-2:]), tokenizer=tokenizer()) == TEXT  # the prompt alone ends nothing
    assert written(stop_strings=letters(PROMPT[-1], TEXT[0]), tokenizer=tokenizer()) == TEXT[:1]


def test_a_drafted_stop_string_stops_nothing():
    other = next(token_id for token_id in range(VOCAB) if letters(token_id) not in letters(*TEXT))
    assert written(stop_strings=letters(other), tokenizer=tokenizer(), drafter=always(other)) == TEXT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop_strings": "ab"}, r"stop_strings=\['ab'\] need the tokenizer: pass tokenizer=..."),
        ({"stop_strings": ["ab", ""], "tokenizer": tokenizer()}, "stop_strings must be non-empty strings"),
        ({"stop_strings": [7], "tokenizer": tokenizer()}, "stop_strings must be non-empty strings"),
    ],
)
def test_stop_strings_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        written(**options)
    with pytest.raises(ValueError, match=message):
        spd_lib.decoder(**options)


def test_smollm2_stops_at_a_string_across_its_tokens():
    target = load("smollm2", device="cpu")
    prompt = target.tokenizer("One, two, three, four, five,", return_tensors="pt")["input_ids"]
    options = {"max_new_tokens": 8, "num_stages": 3, "eos_token_id": []}
    whole = spd_lib.generate(target.model, prompt, **options)[0, prompt.shape[1] :]
    text = target.tokenizer.decode(whole)
    pieces = [target.tokenizer.decode(token_id) for token_id in whole]
    string = pieces[2][-1] + pieces[3][:2]
    end = next(end for end in range(1, 9) if string in "".join(pieces[:end]))
    assert 2 <= end < 8 and string in text and len(string) > 1
    options |= {"stop_strings": [string], "tokenizer": target.tokenizer}
    assert spd_lib.generate(target.model, prompt, **options)[0, prompt.shape[1] :].equal(whole[:end])


# --- criteria of transformers


class Recorder(StoppingCriteria):
    """Writes down what it is asked, and stops at a length."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.seen: list[list[int]] = []

    def __call__(self, input_ids, scores, **kwargs):
        self.seen.append(input_ids[0].tolist())
        return torch.tensor([input_ids.shape[1] >= self.length])


def test_a_criterion_sees_every_committed_prefix_once():
    recorder = Recorder(len(PROMPT) + 6)
    output = output_of(PROMPT, stopping_criteria=[recorder], drafter=Oracle(0.5))
    assert output.traces[0].token_ids == TEXT[:6] and output.traces[0].stop_reason == "criterion"
    assert recorder.seen == [PROMPT + TEXT[:count] for count in range(1, 7)]


def test_the_model_of_these_tests_is_the_shared_one():
    assert reference_of(FAMILY, tuple(PROMPT), TOKENS) == tuple(TEXT)
