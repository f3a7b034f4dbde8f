"""``spd_lib.generate``: odd inputs, batches, drafters that misbehave, streams, Ctrl-C."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
import torch
from transformers import TextIteratorStreamer
from transformers.generation.streamers import BaseStreamer

import spd_lib
from spd_lib.core import Trace, metrics
from spd_lib.core.perfetto import to_perfetto
from spd_lib.draft import Oracle, PromptLookup, Proposal, Random
from spd_lib.target import Pipeline

from ..families import MAX_POSITIONS, VOCAB, prompt_of, reference_of, tiny
from .laws import FromFlight
from .texts import FAMILY, MODEL, PROMPT, TEXT, TOKENS, output_of, pieces_of, tokenizer, written

PAD = 96


def alone(prompt: list[int], count: int) -> list[int]:
    return list(reference_of(FAMILY, tuple(prompt), count))


def fixed(ids: list[int], logits: list[float] | None = None, **kind) -> FromFlight:
    """A drafter that always proposes the same."""
    values = None if logits is None else torch.tensor(logits, **kind)
    return FromFlight(lambda flight: Proposal(torch.tensor(ids), values))


# --- prompts and lengths


@pytest.mark.parametrize("drafter", ["oracle", "random", "prompt-lookup"])
@pytest.mark.parametrize("num_stages", [1, 3, 4])
def test_a_prompt_of_one_token(drafter, num_stages):
    assert written([5], drafter=drafter, num_stages=num_stages) == alone([5], TOKENS)


@pytest.mark.parametrize(
    ("input_ids", "message"),
    [
        (torch.empty(1, 0, dtype=torch.int64), "row 0 has an empty prompt; SPD needs at least one token"),
        (torch.tensor([1, 2, 3]), r"input_ids must be token ids of shape \[rows, prompt_tokens\], got \[3\]"),
        ([[1, 2, 3]], r"input_ids must be token ids of shape \[rows, prompt_tokens\], got list"),
        (torch.zeros(1, 3), "input_ids must be token ids"),
        (torch.tensor([[1, VOCAB]]), f"token id {VOCAB} is not in the model's vocabulary of {VOCAB} ids"),
        (torch.tensor([[1, -2]]), "token id -2 is not in the model's vocabulary"),
    ],
)
def test_prompts_that_cannot_be(input_ids, message):
    with pytest.raises(ValueError, match=message):
        spd_lib.generate(MODEL, input_ids)


def test_the_models_positions_are_the_limit():
    prompt = prompt_of(MAX_POSITIONS - 4)
    assert written(prompt, max_new_tokens=4) == alone(prompt, 4)
    with pytest.raises(ValueError, match="124 prompt tokens and max_new_tokens=5 exceed the model's 128 positions"):
        written(prompt, max_new_tokens=5)


@pytest.mark.parametrize(
    ("num_stages", "message"),
    [(number, f"num_stages must be between 1 and the model's 4 layers, got {number}") for number in (-1, 0, 5)],
)
def test_stages_that_cannot_be(num_stages, message):
    with pytest.raises(ValueError, match=message):
        written(num_stages=num_stages)


@pytest.mark.parametrize("plan", ["even", "balanced", [2, 1, 1], (1, 3, 0)])
def test_every_plan_writes_the_same_text(plan):
    output = output_of(PROMPT, plan=plan)
    assert output.traces[0].token_ids == TEXT
    assert sum(output.traces[0].notes["plan"]["layers"]) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "random"}, "unknown plan 'random'"),
        ({"plan": [2, 2]}, "the plan has 2 stages, num_stages is 3"),
        ({"num_return_sequences": 2}, "num_return_sequences=2: .* greedy decoding has only one text"),
        ({"num_return_sequences": 0, "temperature": 1.0}, "num_return_sequences=0: must be at least 1"),
        ({"num_beams": 4}, "num_beams=4 is not supported: SPD decodes one sequence"),
        ({"do_sample": True}, "do_sample=True is not supported: give a temperature"),
        ({"assistant_model": "x"}, "assistant_model='x' is not supported: give a drafter"),
        ({"inputs_embeds": "x"}, "inputs_embeds='x' is not supported"),
        ({"past_key_values": "x"}, "past_key_values='x' is not supported"),
        ({"max_length": 9}, r"max_length=9 is not supported: generate\(\) does not know it"),
    ],
)
def test_what_cannot_be_honoured_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        written(**options)


def test_a_target_is_not_a_model():
    with pytest.raises(ValueError, match="'Target' is refused: it is not a transformers model"):
        spd_lib.generate(type("Target", (), {})(), torch.tensor([PROMPT]))


def test_messages_are_one_line():
    for options in ({"num_beams": 2}, {"top_p": 2.0}, {"num_stages": 9}, {"drafter": "eagle"}, {"max_new_tokens": 0}):
        with pytest.raises(ValueError) as caught:
            written(**options)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 160


# --- drafters


def test_an_unknown_drafter_lists_the_known_ones():
    known = "shipped, prompt-lookup, oracle, random"
    with pytest.raises(ValueError, match=f"unknown drafter 'eagle'; the known ones are {known}"):
        written(drafter="eagle")


def test_an_object_that_is_no_drafter():
    with pytest.raises(TypeError, match="dict is not a drafter: it has no begin, propose, rollback"):
        written(drafter={})


def test_a_drafter_that_abstains():
    with pytest.raises(TypeError, match="a drafter must propose a Proposal, got NoneType"):
        written(drafter=FromFlight(lambda flight: None))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
@pytest.mark.parametrize("ids", [[VOCAB], [-1], [3, VOCAB + 200], [2, -7, 3]])
def test_proposals_outside_the_vocabulary(ids, coupling, temperature):
    """Refused even if another of the ids would have been drawn."""
    wrong = next(token_id for token_id in ids if not 0 <= token_id < VOCAB)
    logits = None if len(ids) == 1 else [5.0] + [-50.0] * (len(ids) - 1)
    with pytest.raises(ValueError, match=f"proposed token id {wrong}, the target's vocabulary has {VOCAB} ids"):
        written(drafter=fixed(ids, logits), temperature=temperature, coupling=coupling)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_proposals_that_are_not_finite(wrong, temperature):
    for logits in ([0.0, wrong, 1.0], [-float("inf")] * 3):
        with pytest.raises(ValueError, match="the drafter's logits are NaN, \\+∞, or all of them −∞"):
            written(drafter=fixed([1, 2, 3], logits), temperature=temperature)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_a_drafter_may_rule_tokens_out(coupling, temperature):
    options = {"temperature": temperature, "coupling": coupling, "seed": 1}
    drafter = fixed([1, TEXT[1], 3], [-float("inf"), 0.0, -float("inf")])
    assert len(written(drafter=drafter, **options)) == TOKENS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_logits_of_another_dtype_are_converted(dtype):
    drafter = fixed([TEXT[1], TEXT[2], 3], [0.5, 0.25, -1.0], dtype=dtype)
    assert written(drafter=drafter) == TEXT
    alike = fixed([TEXT[1], TEXT[2], 3], [0.5, 0.25, -1.0])
    for coupling in ("gumbel", "rejection"):
        options = {"temperature": 1.0, "seed": 2, "coupling": coupling}
        assert written(drafter=drafter, **options) == written(drafter=alike, **options)


def test_ids_of_another_dtype_and_logits_with_a_graph():
    ids, logits = torch.tensor([1, 2], dtype=torch.int32), torch.zeros(2, requires_grad=True)
    for coupling in ("gumbel", "rejection"):
        drafter = FromFlight(lambda flight: Proposal(ids, logits))
        assert len(written(drafter=drafter, temperature=1.0, coupling=coupling)) == TOKENS


@pytest.mark.parametrize("part", ["ids", "logits"])
def test_a_drafter_on_a_device_without_values_is_refused(part):
    ids, logits = torch.tensor([1, 2]), torch.zeros(2)
    proposal = Proposal(ids.to("meta") if part == "ids" else ids, logits.to("meta") if part == "logits" else logits)
    with pytest.raises(ValueError, match="the drafter's tensors are on the device 'meta'"):
        written(drafter=FromFlight(lambda flight: proposal))


def test_one_drafter_object_serves_many_texts():
    for drafter in (Oracle(0.4), Random(), PromptLookup(2)):
        for prompt in (PROMPT, prompt_of(9), PROMPT):
            assert written(prompt, drafter=drafter) == alone(prompt, TOKENS)


class Mirror(Random):
    """Keeps its own copy of the text, as a drafter with a cache does, and is told what to forget."""

    def begin(self, pipeline, prompt_ids):
        super().begin(pipeline, prompt_ids)
        self.ids = list(prompt_ids)

    def propose(self, flight):
        assert flight.ids[: len(self.ids)] == self.ids, "what was thrown away is still in the copy"
        self.ids = list(flight.ids)
        return super().propose(flight)

    def rollback(self, to):
        assert len(PROMPT) < to < len(self.ids) + 1
        del self.ids[to:]


@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_a_drafter_is_told_what_was_thrown_away(num_stages):
    assert written(drafter=Mirror(), num_stages=num_stages) == TEXT


# --- batches


def left_padded(*prompts: list[int]) -> dict[str, torch.Tensor]:
    longest = max(map(len, prompts))
    rows = [[PAD] * (longest - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


ROWS = [prompt_of(7), prompt_of(1), PROMPT, prompt_of(4)]


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32])
def test_left_padded_rows_are_decoded_as_if_alone(kind):
    batch = left_padded(*ROWS)
    batch["attention_mask"] = batch["attention_mask"].to(kind)
    sequences = spd_lib.generate(MODEL, **batch, max_new_tokens=TOKENS)
    assert sequences[:, :7].equal(batch["input_ids"])
    assert sequences[:, 7:].tolist() == [alone(prompt, TOKENS) for prompt in ROWS]


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_a_sampled_row_is_what_a_call_with_its_number_gives(coupling):
    options = {"max_new_tokens": 6, "temperature": 1.5, "top_k": 30, "seed": 9, "coupling": coupling}
    together = spd_lib.generate(MODEL, **left_padded(*ROWS), **options, num_return_sequences=2)[:, 7:]
    for row, text in enumerate(together):
        prompt = ROWS[row // 2]
        single = spd_lib.generate(MODEL, torch.tensor([prompt]), **options, first_row=row)
        assert single[0, len(prompt) :].equal(text)


def test_shorter_rows_end_in_the_pad_token():
    ends = [alone(ROWS[0], 3)[2], alone(ROWS[2], 6)[5]]
    options = {"eos_token_id": ends, "max_new_tokens": TOKENS, "return_dict_in_generate": True}
    output = spd_lib.generate(MODEL, **left_padded(*ROWS), **options, pad_token_id=PAD)
    lengths = [len(trace.token_ids) for trace in output.traces]
    assert len(set(lengths)) > 1 and output.sequences.shape[1] == 7 + max(lengths)
    for row, prompt in enumerate(ROWS):
        text = alone(prompt, lengths[row])
        assert output.sequences[row, 7:].tolist() == text + [PAD] * (max(lengths) - len(text))
        assert not set(text[:-1]) & set(ends) and (text[-1] in ends or len(text) == TOKENS)


def test_without_a_pad_token_rows_end_in_the_end_of_sequence():
    end = alone(ROWS[0], 2)[1]
    options = {"eos_token_id": [end], "max_new_tokens": 4}
    sequences = spd_lib.generate(MODEL, torch.tensor([ROWS[0], prompt_of(7, 1)]), **options)
    assert sequences[0, 8:].tolist() == [end] * 3 and end not in sequences[1, 7:].tolist()


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([[1, 1, 1], [1, 1, 0]], "padding on the right or inside; set tokenizer.padding_side = 'left'"),
        ([[1, 0, 1], [1, 1, 1]], "padding on the right or inside"),
        ([[1, 1, 1], [0, 0, 0]], "row 1 has an empty prompt"),
        ([[1, 1, 1]], r"attention_mask has shape \[1, 3\], input_ids \[2, 3\]"),
    ],
)
def test_masks_that_cannot_be(mask, message):
    with pytest.raises(ValueError, match=message):
        ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
        spd_lib.generate(MODEL, ids, attention_mask=torch.tensor(mask), max_new_tokens=3)


def test_the_result_is_a_tensor_or_sequences_and_traces():
    ids = torch.tensor([PROMPT])
    plain = spd_lib.generate(MODEL, ids, max_new_tokens=3)
    output = spd_lib.generate(MODEL, ids, max_new_tokens=3, return_dict_in_generate=True)
    assert isinstance(plain, torch.Tensor) and plain.dtype == torch.int64
    assert output.sequences.equal(plain) and output["sequences"] is output.sequences
    assert [type(trace) for trace in output.traces] == [Trace]
    assert Trace.from_json(output.traces[0].to_json()).notes == output.traces[0].notes
    assert output.traces[0].notes["max_new_tokens"] == 3 and output.traces[0].notes["coupling"] == "greedy"


# --- streams


class Heard(BaseStreamer):
    """Writes down what it is given; ``fails_at``: raises at that token."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.puts: list[list[int]] = []
        self.ended = 0
        self.fails_at = fails_at

    def put(self, value):
        if self.fails_at == len(self.puts):
            raise RuntimeError("the reader has gone")
        self.puts.append(value.flatten().tolist())

    def end(self):
        self.ended += 1


@pytest.mark.parametrize("error_rate", [0.0, 0.5, 1.0])
def test_a_streamer_hears_prompt_and_committed_tokens_one_by_one(error_rate):
    heard, origins = Heard(), []
    options = {"drafter": Oracle(error_rate), "on_commit": lambda token_id, origin: origins.append((token_id, origin))}
    trace = output_of(PROMPT, streamer=heard, **options).traces[0]
    assert heard.puts == [PROMPT, *([token_id] for token_id in TEXT)] and heard.ended == 1
    assert [token_id for token_id, _ in origins] == TEXT
    assert [origin for _, origin in origins] == [trace.tokens[uid].origin for uid in trace.committed]


def test_a_streamer_takes_one_row():
    for listener in ({"streamer": Heard()}, {"on_commit": print}):
        with pytest.raises(ValueError, match=r"a streamer \(or on_commit\) takes one row, the batch has 2"):
            output_of(PROMPT, PROMPT, **listener)
    with pytest.raises(ValueError, match="takes one row, the batch has 2"):
        output_of(PROMPT, temperature=1.0, num_return_sequences=2, streamer=Heard())


def test_a_streamer_is_ended_after_an_error():
    heard = Heard()
    with pytest.raises(ValueError, match="proposed token id 999"):
        written(drafter=fixed([999]), streamer=heard)
    assert heard.ended == 1
    failing = Heard(fails_at=3)
    with pytest.raises(RuntimeError, match="the reader has gone"):
        written(streamer=failing)
    assert failing.ended == 1


@pytest.mark.parametrize("drafter", ["oracle", "random"])
def test_a_token_is_streamed_before_the_next_one_is_made(drafter):
    heard, streamed = Heard(), []
    output_of(PROMPT, drafter=drafter, streamer=heard, on_commit=lambda *_: streamed.append(len(heard.puts)))
    assert streamed == list(range(2, TOKENS + 2))  # the prompt, and one put for each commit so far


def test_a_text_iterator_yields_and_ends():
    streamer = TextIteratorStreamer(tokenizer(), skip_prompt=True, timeout=60)
    thread = threading.Thread(target=written, kwargs={"streamer": streamer})
    thread.start()
    pieces = list(streamer)
    thread.join(60)
    assert pieces == pieces_of(TEXT) and not thread.is_alive()


# --- Ctrl-C


def at_call(number: int, function: Callable) -> Callable:
    """``function``, but its call ``number`` (from 1) is interrupted."""
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(None)
        if len(calls) == number:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return interrupted


def check_interrupted(output, most: int) -> Trace:
    """What is returned is a beginning of the text, and its Trace can be read like any other."""
    (trace,) = output.traces
    assert trace.stop_reason == "interrupted"
    count = len(trace.token_ids)
    assert count <= most and trace.token_ids == TEXT[:count]
    assert output.sequences[0].tolist() == PROMPT + TEXT[:count]
    assert Trace.from_json(trace.to_json()) == trace
    json.dumps(to_perfetto(trace))
    fates = [trace.fate(uid) for uid in range(len(trace.tokens))]
    assert sum(fate in ("committed", "corrected") for fate in fates) == count
    assert all(token.drafted_in is None or token.drafted_in < len(trace.cycles) for token in trace.tokens)
    assert metrics.num_judged(trace) == max(0, count - 1)
    return trace


@pytest.mark.parametrize("error_rate", [0.0, 0.6])
@pytest.mark.parametrize("number", [1, 2, 4, 7])
@pytest.mark.parametrize("method", ["begin", "propose", "rollback"])
def test_interrupted_in_the_drafter(method, number, error_rate):
    drafter = Oracle(error_rate)
    setattr(drafter, method, at_call(number, getattr(drafter, method)))
    output = output_of(PROMPT, drafter=drafter)
    if output.traces[0].stop_reason == "interrupted":
        check_interrupted(output, TOKENS)
    else:
        assert output.traces[0].token_ids == TEXT and (method, number) != ("propose", 1)


@pytest.mark.parametrize("number", [1, 2, 3, 6, 11])
@pytest.mark.parametrize("method", ["prefill", "advance", "rollback"])
def test_interrupted_in_the_pipe(monkeypatch, method, number):
    monkeypatch.setattr(Pipeline, method, at_call(number, getattr(Pipeline, method)))
    output = output_of(PROMPT, drafter=Oracle(0.6))
    if output.traces[0].stop_reason == "interrupted":
        check_interrupted(output, TOKENS)
    else:
        assert output.traces[0].token_ids == TEXT and method != "advance"


@pytest.mark.parametrize("number", [1, 2, 5])
def test_interrupted_while_telling(number):
    """The token that was being told is committed; the listener may or may not have it."""
    listener = at_call(number, lambda token_id, origin: None)
    trace = check_interrupted(output_of(PROMPT, on_commit=listener, drafter=Oracle(0.5)), number)
    assert len(trace.token_ids) == number


@pytest.mark.parametrize("number", [1, 2, 6])
def test_interrupted_in_a_processor(number):
    options = {"logits_processor": [at_call(number, lambda ids, scores: scores)]}
    trace = check_interrupted(output_of(PROMPT, **options), number - 1)
    assert len(trace.token_ids) == number - 1


def test_interrupted_in_a_stream():
    heard = Heard()
    heard.put = at_call(4, heard.put)
    check_interrupted(output_of(PROMPT, streamer=heard), 3)
    assert heard.puts == [PROMPT, [TEXT[0]], [TEXT[1]]] and heard.ended == 1


def test_an_interrupted_batch_returns_the_rows_so_far():
    drafter, threads = Oracle(), threading.active_count()
    drafter.begin = at_call(2, drafter.begin)
    output = output_of(PROMPT, prompt_of(5, 1), PROMPT, drafter=drafter, pad_token_id=PAD)
    assert [trace.stop_reason for trace in output.traces] == ["budget", "interrupted"]
    assert output.sequences[0, 5:].tolist() == TEXT
    assert output.sequences[1:, 5:].tolist() == [[PAD] * TOKENS] * 2
    assert threading.active_count() == threads


def test_after_an_interruption_the_next_text_is_right():
    drafter = Oracle(0.5)
    drafter.propose = at_call(5, drafter.propose)
    check_interrupted(output_of(PROMPT, drafter=drafter), TOKENS)
    assert written(drafter=drafter) == TEXT


def test_other_families_take_the_same_door():
    for family in ("gemma3", "mistral"):
        sequences = spd_lib.generate(tiny(family), **left_padded(*ROWS), max_new_tokens=8, num_stages=4)
        assert sequences[:, 7:].tolist() == [list(reference_of(family, tuple(prompt), 8)) for prompt in ROWS]
