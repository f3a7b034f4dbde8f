"""Through transformers: ``model.generate(**inputs, custom_generate=spd_lib.decoder(...))``."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from transformers import (
    DynamicCache,
    LogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteriaList,
    TextIteratorStreamer,
)

import spd_lib
from spd_lib.core import Trace
from spd_lib.decode import GenerateOutput
from spd_lib.draft import Oracle
from spd_lib.target import load

from ..families import FAMILIES, VOCAB, fresh, prompt_of, tiny
from .test_generate import PAD, ROWS, Heard, left_padded
from .texts import MODEL, PROMPT, TEXT, TOKENS, pieces_of, tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers warns about pad tokens and greedy settings
INPUTS = {"input_ids": torch.tensor([PROMPT]), "attention_mask": torch.ones(1, len(PROMPT), dtype=torch.int64)}


def through(inputs=INPUTS, model=MODEL, *, options=None, **settings):
    """``model.generate`` with SPD; ``options`` are the factory's."""
    factory = {"drafter": "random", "num_stages": 3} | (options or {})
    settings = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": PAD} | settings
    return model.generate(**inputs, custom_generate=spd_lib.decoder(**factory), **settings)


def plain(inputs=INPUTS, model=MODEL, **settings):
    """``model.generate`` as transformers does it."""
    settings = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": PAD} | settings
    return model.generate(**inputs, **settings)


# --- the same text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("drafter", ["random", "prompt-lookup", Oracle(0.4)], ids=str)
def test_greedy_text_is_transformers_own(family, drafter):
    for length in (1, 4, 20):
        inputs = {"input_ids": torch.tensor([prompt_of(length)])}
        expected = plain(inputs, tiny(family))
        assert through(inputs, tiny(family), options={"drafter": drafter}).equal(expected)


def test_left_padded_rows():
    batch = left_padded(*ROWS)
    expected = plain(batch)
    assert through(batch).equal(expected)
    for row, prompt in enumerate(ROWS):
        single = through({"input_ids": torch.tensor([prompt])})
        assert single[0, len(prompt) :].equal(expected[row, 7:])


def test_left_padded_rows_with_an_end_of_sequence():
    batch = left_padded(*ROWS)
    end = plain(batch)[2, 7 + 4].item()
    assert through(batch, eos_token_id=[end, 3]).equal(plain(batch, eos_token_id=[end, 3]))


def test_a_mask_that_transformers_finds_itself():
    """Without attention_mask, transformers takes pad tokens for padding."""
    ids = left_padded(*ROWS)["input_ids"]
    assert through({"input_ids": ids}).equal(plain({"input_ids": ids}))


def test_smollm2_greedy_text_is_transformers_own():
    target = load("smollm2", device="cpu")
    inputs = target.tokenizer("The capital of France is", return_tensors="pt")
    settings = {"max_new_tokens": 10, "do_sample": False}
    expected = target.model.generate(**inputs, **settings)
    for drafter, num_stages in (("prompt-lookup", 4), ("oracle", 3)):
        decoder = spd_lib.decoder(drafter=drafter, num_stages=num_stages)
        assert target.model.generate(**inputs, **settings, custom_generate=decoder).equal(expected)


class Recorder(LogitsProcessor):
    """Writes down the prefixes it sees and favours nothing."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, input_ids, scores):
        self.seen.append(input_ids[0].tolist())
        return scores


REPETITIVE = {"input_ids": torch.tensor([prompt_of(6) * 3])}


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.8},
        {"no_repeat_ngram_size": 1},
        {"min_new_tokens": 8, "eos_token_id": TEXT[:6]},
        {"bad_words_ids": [[TEXT[0]], [TEXT[3], TEXT[4]]]},
        {"suppress_tokens": TEXT[:4]},
        {"begin_suppress_tokens": [TEXT[0]]},
        {"sequence_bias": {(5,): 4.0, (9, 2): 3.0}},
        {"forced_eos_token_id": 7},
        {"exponential_decay_length_penalty": (2, 3.0), "eos_token_id": 7},
        {"encoder_repetition_penalty": 2.0},
        {"prefix_allowed_tokens_fn": lambda row, ids: list(range(int(ids[-1]) % 2, VOCAB, 2))},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 4, "eos_token_id": TEXT[2]},
        {"max_new_tokens": None, "max_length": len(PROMPT) * 4},
        {"stop_strings": None, "max_time": 1e9},
    ],
    ids=lambda settings: "-".join(settings),
)
@pytest.mark.parametrize("inputs", [INPUTS, REPETITIVE], ids=["short", "repetitive"])
def test_processors_do_what_they_do_in_transformers(settings, inputs):
    for drafter in ("random", "prompt-lookup"):
        assert through(inputs, options={"drafter": drafter}, **settings).equal(plain(inputs, **settings))


def test_some_of_those_processors_change_the_text():
    text = plain(REPETITIVE)
    for settings in ({"repetition_penalty": 1.8}, {"no_repeat_ngram_size": 1}, {"suppress_tokens": [int(text[0, 18])]}):
        assert not plain(REPETITIVE, **settings).equal(text), f"{settings} prove nothing here"


@pytest.mark.parametrize("error_rate", [0.0, 0.5])
def test_a_processor_sees_the_committed_prefixes_and_no_others(error_rate):
    recorder = Recorder()
    through(options={"drafter": Oracle(error_rate)}, logits_processor=[recorder])
    assert recorder.seen == [PROMPT + TEXT[:count] for count in range(TOKENS)]


@pytest.mark.parametrize(
    "settings", [{"repetition_penalty": 1.8}, {"no_repeat_ngram_size": 1}, {"suppress_tokens": [3]}], ids=str
)
def test_processors_on_padded_rows_do_what_they_do_on_each_row_alone(settings):
    together = through(left_padded(*ROWS), **settings)
    for row, prompt in enumerate(ROWS):
        single = plain({"input_ids": torch.tensor([prompt])}, **settings)
        assert together[row, 7:].equal(single[0, len(prompt) :])


def test_numpy_numbers_are_whole_and_others_are_named():
    options = {"seed": np.int64(3), "first_row": np.int64(1), "num_stages": np.int64(3)}
    output = through(options=options, do_sample=True, return_dict_in_generate=True)
    assert Trace.from_json(output.traces[0].to_json()).notes["seed"] == 3
    for name, value in {"num_stages": "3", "seed": 1.5, "first_row": None}.items():
        with pytest.raises(ValueError, match=f"{name} must be a whole number, got {value!r}"):
            through(options={name: value}, do_sample=True)


def test_one_greedy_gate():
    cold = {"do_sample": True, "temperature": 1e-6}
    for extra in ({}, {"top_k": 5}, {"top_p": 0.5}):
        assert through(**cold, **extra)[0, len(PROMPT) :].tolist() == TEXT
    output = through(**cold, return_dict_in_generate=True)
    assert output.traces[0].notes["coupling"] == "greedy"


# --- sampling


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_sampling_settings_mean_the_same_through_both_doors(coupling):
    options = {"seed": 3, "coupling": coupling, "drafter": "random", "num_stages": 3}
    for warp in ({"temperature": 1.5, "top_k": 20}, {"temperature": 1.0, "top_p": 0.9, "top_k": 0}, {"top_k": 50}):
        own = {"temperature": 1.0} | warp
        expected = spd_lib.generate(MODEL, INPUTS["input_ids"], max_new_tokens=TOKENS, **own, **options)
        assert through(options=options, do_sample=True, **warp).equal(expected)


def test_num_return_sequences():
    options = {"seed": 3, "first_row": 2}
    together = through(options=options, do_sample=True, num_return_sequences=3, temperature=2.0)
    assert together.shape[0] == 3 and len({tuple(row.tolist()) for row in together}) == 3
    for row in range(3):
        alone = through(options=options | {"first_row": 2 + row}, do_sample=True, temperature=2.0)
        assert alone[0].equal(together[row])


def test_num_return_sequences_of_padded_rows():
    settings = {"do_sample": True, "temperature": 2.0, "num_return_sequences": 2}
    together = through(left_padded(*ROWS), options={"seed": 3}, **settings)
    alone = through({"input_ids": torch.tensor([ROWS[3]])}, options={"seed": 3, "first_row": 6}, **settings)
    assert together.shape[0] == 8 and together[6:, 7:].equal(alone[:, len(ROWS[3]) :])


def test_unseeded_sampling_follows_manual_seed():
    torch.manual_seed(5)
    first, second = through(do_sample=True, temperature=2.0), through(do_sample=True, temperature=2.0)
    torch.manual_seed(5)
    assert not first.equal(second) and through(do_sample=True, temperature=2.0).equal(first)


# --- results, stopping, streams


def test_a_dictionary_has_sequences_and_traces():
    output = through(left_padded(*ROWS), return_dict_in_generate=True)
    assert isinstance(output, GenerateOutput) and len(output.traces) == len(ROWS)
    for trace, row in zip(output.traces, output.sequences, strict=True):
        assert row[7:].tolist() == trace.token_ids and trace.num_stages == 3 and trace.cycles


def test_the_default_length_is_transformers_own():
    assert through(max_new_tokens=None).equal(plain(max_new_tokens=None))


@pytest.mark.parametrize("end", [0, 3, 9])
def test_end_of_sequence(end):
    for ids in (TEXT[end], [TEXT[end], VOCAB + 3], [TEXT[end], TEXT[-1]]):
        assert through(eos_token_id=ids)[0, len(PROMPT) :].tolist() == TEXT[: end + 1]


def test_stop_strings_and_the_users_criteria():
    string = tokenizer().decode(TEXT[3:5])[1:3]
    options = {"stop_strings": string, "tokenizer": tokenizer()}
    expected = plain(stop_strings=string, tokenizer=tokenizer())
    assert through(options=options).equal(expected) and expected.shape[1] < len(PROMPT) + TOKENS
    criteria = StoppingCriteriaList([lambda ids, scores, **kwargs: torch.tensor([ids.shape[1] >= len(PROMPT) + 4])])
    assert through(stopping_criteria=criteria)[0, len(PROMPT) :].tolist() == TEXT[:4]


def test_a_text_iterator_streamer_yields_token_by_token_and_ends():
    streamer = TextIteratorStreamer(tokenizer(), skip_prompt=True, timeout=60)
    thread = threading.Thread(target=through, kwargs={"options": {"streamer": streamer}})
    thread.start()
    pieces = list(streamer)
    thread.join(60)
    assert pieces == pieces_of(TEXT) and not thread.is_alive()


def test_ctrl_c_returns_what_is_committed():
    drafter = Oracle()

    def interrupted(flight):
        if flight.next_position == len(PROMPT) + 6:
            raise KeyboardInterrupt
        return Oracle.propose(drafter, flight)

    drafter.propose = interrupted
    written = through(options={"drafter": drafter})[0, len(PROMPT) :].tolist()
    assert written == TEXT[: len(written)] and 1 <= len(written) < 7


# --- what cannot be honoured, each by its name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 2}, "num_beams=2 is not supported: SPD decodes one sequence, not beams"),
        ({"assistant_model": MODEL}, "assistant_model is not supported: give a drafter instead"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens=3 is not supported: give drafter='prompt-lookup'"),
        ({"guidance_scale": 2.0}, "guidance_scale=2.0 is not supported"),
        ({"negative_prompt_ids": torch.tensor([[1]])}, "negative_prompt_ids is not supported"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores=True is not supported"),
        ({"output_logits": True, "return_dict_in_generate": True}, "output_logits=True is not supported"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "output_attentions=True is not supported"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states=True is not supp"),
        ({"position_ids": torch.arange(2, 7)[None]}, "position_ids are not supported: SPD counts positions"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        through(**settings)
    assert "\n" not in str(caught.value)


def test_a_stream_that_transformers_would_lose_is_refused_and_ended():
    heard = Heard()
    with pytest.raises(ValueError, match=r"streamer is not supported: .* give it to spd_lib.decoder\(streamer=...\)"):
        through(streamer=heard)
    assert heard.ended == 1


def cache_keyword() -> str:
    """Newer transformers call it ``cache``."""
    output = MODEL(input_ids=torch.tensor([[1]]), use_cache=True)
    return "cache" if hasattr(output, "cache") else "past_key_values"


def test_a_filled_cache_is_refused_and_an_empty_one_is_not():
    name, cache = cache_keyword(), DynamicCache()
    harmless = {name: cache, "logits_to_keep": 1, "use_cache": False, "position_ids": torch.arange(5)[None]}
    assert through(**harmless)[0, len(PROMPT) :].tolist() == TEXT
    MODEL(input_ids=torch.tensor([PROMPT[:-1]]), **{name: cache})
    with pytest.raises(ValueError, match=f"{name} is not supported: SPD stages own their memory"):
        through(**{name: cache})


def test_embeddings_are_refused():
    embeddings = MODEL.get_input_embeddings()(INPUTS["input_ids"])
    with pytest.raises(ValueError, match="inputs_embeds is not supported: give input_ids"):
        through({"inputs_embeds": embeddings})


def test_a_streamer_takes_one_row():
    with pytest.raises(ValueError, match="takes one row, the batch has 4"):
        through(left_padded(*ROWS), options={"streamer": Heard()})


@pytest.mark.parametrize(
    "settings",
    [
        {"min_new_tokens": 3, "eos_token_id": 7},
        {"begin_suppress_tokens": [3]},
        {"forced_eos_token_id": 3},
        {"exponential_decay_length_penalty": (2, 1.5), "eos_token_id": 7},
        {"logits_processor": [RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=2)]},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_processors_that_count_padding_are_refused_on_padded_rows(settings):
    with pytest.raises(ValueError, match="counts padding; generate rows of different length one by one"):
        through(left_padded(*ROWS), **settings)
    even = torch.tensor([prompt_of(5, 1), prompt_of(5, 2)])
    assert through({"input_ids": even}, **settings).equal(plain({"input_ids": even}, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_repetition_penalty": 2.0},
        {"encoder_no_repeat_ngram_size": 2},
        {"prefix_allowed_tokens_fn": lambda row, ids: [row, 5]},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_processors_that_need_the_whole_batch_are_refused(settings):
    two_rows = {"input_ids": torch.tensor([prompt_of(5, 1), prompt_of(5, 2)])}
    with pytest.raises(ValueError, match="needs to see all rows at once; generate them one by one"):
        through(two_rows, **settings)


def test_wrong_arguments_of_the_factory():
    with pytest.raises(ValueError, match="unknown coupling 'x'"):
        spd_lib.decoder(coupling="x")
    with pytest.raises(ValueError, match="unknown drafter 'eagle'; the known ones are"):
        through(options={"drafter": "eagle"})
    with pytest.raises(ValueError, match="num_stages must be between 1 and the model's 4 layers, got 9"):
        through(options={"num_stages": 9})


def test_a_model_in_training_mode_is_refused():
    model = fresh("llama").train()
    with pytest.raises(ValueError, match="training mode"):
        through(model=model)
