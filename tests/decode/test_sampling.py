"""Sampled texts of real models: Gumbel coupling writes what plain sampling writes, rejection keeps the law."""

from __future__ import annotations

from functools import cache, lru_cache

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

import spd_lib
from spd_lib.baselines import autoregressive
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler, make_rule, warpers
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Drafter, Oracle, PromptLookup, Proposal, Random
from spd_lib.target import Flight, Pipeline, load

from ..families import FAMILIES, VOCAB, own_logits, prompt_of, reference_of, tiny
from .laws import FromFlight, counted, excess

CPU = torch.device("cpu")
SEEDS = range(40)
NEW_TOKENS = 8
WARPS = [(1.0, None, None), (0.7, None, None), (1.5, 20, None), (1.0, None, 0.9), (0.9, 30, 0.8), (3.0, 5, None)]


def half_known(flight: Flight) -> Proposal:
    """Half of the vocabulary, with logits that depend on the newest token and on how full the pipe is."""
    source = torch.Generator().manual_seed(1_000 * flight.fill + flight.ids[-1])
    return Proposal(torch.arange(1, VOCAB, 2), torch.randn(VOCAB // 2, generator=source) * 3)


@cache
def pipeline(family: str, num_stages: int) -> Pipeline:
    return Pipeline(tiny(family), num_stages)


@lru_cache
def plainly(seed: int) -> tuple[str, list[int], Sampler, list[int]]:
    """Family, prompt and sampler that belong to a seed, and the text of plain sampling."""
    family, prompt = FAMILIES[seed % len(FAMILIES)], prompt_of(1 + seed % 10, seed)
    rule = make_rule("gumbel", seed=seed, row=seed % 3, vocab_size=VOCAB, device=CPU)
    sampler = Sampler(rule, warpers(*WARPS[(seed // 2) % len(WARPS)]), vocab_size=VOCAB, device=CPU)
    return family, prompt, sampler, autoregressive(pipeline(family, 1), sampler, prompt, NEW_TOKENS).token_ids


DRAFTERS = {
    "oracle": lambda seed: Oracle(0.3, text=plainly(seed)[3], seed=seed),
    "random": Random,
    "prompt lookup": lambda seed: PromptLookup(1 + seed % 3),
    "half of the vocabulary": lambda seed: FromFlight(half_known),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_gumbel_writes_the_text_of_plain_sampling(drafter, num_stages):
    for seed in SEEDS:
        family, prompt, sampler, text = plainly(seed)
        made = DRAFTERS[drafter](seed)
        trace = decode(pipeline(family, num_stages), made, sampler, StopRule(len(prompt), NEW_TOKENS), prompt)
        assert trace.token_ids == text, f"seed {seed}"


def test_sampled_texts_differ_from_each_other_and_from_greedy():
    texts = [tuple(plainly(seed)[3]) for seed in SEEDS]
    greedy = [reference_of(FAMILIES[s % len(FAMILIES)], tuple(prompt_of(1 + s % 10, s)), NEW_TOKENS) for s in SEEDS]
    assert len(set(texts)) == len(SEEDS)
    assert sum(text != alone for text, alone in zip(texts, greedy, strict=True)) >= 38


# --- the law of whole texts, from 500 runs of the engine


TOP, TEMPERATURE, LAW_TOKENS, RUNS = 3, 2.0, 3, 500


@cache
def top_logits(prefix: tuple[int, ...]) -> tuple[list[int], torch.Tensor]:
    """The ``TOP`` likeliest next tokens of the tiny llama, and their probabilities."""
    best = (own_logits(tiny("llama"), list(prefix)) / TEMPERATURE).topk(TOP)
    return best.indices.tolist(), best.values.softmax(0)


def text_law(prompt: list[int]) -> dict[tuple[int, ...], float]:
    """Every text that can be written, and its probability, from full forwards of the model alone."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LAW_TOKENS):
        law = {
            (*text, token_id): mass * float(share)
            for text, mass in law.items()
            for token_id, share in zip(*top_logits((*prompt, *text)), strict=True)
        }
    return law


def blurred(flight: Flight) -> Proposal:
    """The right tokens with the wrong probabilities, and some wrong tokens."""
    ids, probabilities = top_logits(tuple(flight.ids))
    return Proposal(torch.tensor([*ids, 0, 1]), torch.cat([probabilities.flip(0).log(), torch.tensor([-1.0, -1.0])]))


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_law_of_the_engines_texts(coupling):
    prompt = prompt_of(6)
    law = text_law(prompt)
    number, written, pipe = {text: place for place, text in enumerate(law)}, [], pipeline("llama", 2)
    for seed in range(RUNS):
        rule = make_rule(coupling, seed=seed, row=0, vocab_size=VOCAB, device=CPU)
        sampler = Sampler(rule, warpers(TEMPERATURE, TOP, None), vocab_size=VOCAB, device=CPU)
        trace = decode(pipe, FromFlight(blurred), sampler, StopRule(len(prompt), LAW_TOKENS), prompt)
        written.append([number[tuple(trace.token_ids)]])  # a text outside the law is a KeyError
    counts, expected = counted(written, len(law), 1), torch.tensor(list(law.values()))
    rare = expected * RUNS < 5  # counted together
    pooled = [torch.cat([part[~rare], part[rare].sum()[None]]) for part in (counts, expected)]
    assert excess(*pooled) < 1


# --- seeds and rows


def sample(*rows: list[int], **options) -> list[list[int]]:
    """New tokens of each row."""
    model = tiny("qwen3")
    defaults = {"max_new_tokens": 6, "temperature": 2.0, "num_stages": 2, "drafter": "random"}
    return spd_lib.generate(model, torch.tensor(rows), **defaults | options)[:, len(rows[0]) :].tolist()


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_equal_rows_differ_and_each_is_reproducible_alone(coupling):
    prompt = prompt_of(4)
    together = sample(prompt, prompt, prompt, seed=5, coupling=coupling)
    returned = sample(prompt, seed=5, coupling=coupling, num_return_sequences=3)
    assert together == returned and len({tuple(text) for text in together}) == 3
    for row, text in enumerate(together):
        assert sample(prompt, seed=5, coupling=coupling, first_row=row) == [text]


def test_unseeded_calls_differ_and_manual_seed_reproduces_them():
    prompt = prompt_of(4)
    torch.manual_seed(123)
    first, second = sample(prompt), sample(prompt)
    torch.manual_seed(123)
    assert first != second and [sample(prompt), sample(prompt)] == [first, second]


def test_greedy_and_seeded_calls_leave_torchs_generator_alone():
    before = torch.get_rng_state()
    sample(prompt_of(4), temperature=0.0)
    sample(prompt_of(4), seed=1)
    assert torch.get_rng_state().equal(before)


def test_all_64_bits_of_a_seed_matter():
    prompt = prompt_of(4)
    seeds = [7, 7 + 2**32, 7 + 2**33, 7 + 2**63]
    assert len({tuple(sample(prompt, seed=seed)[0]) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_would_be_taken_for_another_is_refused(seed):
    with pytest.raises(ValueError, match=rf"seed must be between 0 and 2⁶⁴ − 1, got {seed}"):
        sample(prompt_of(4), seed=seed)


@pytest.mark.parametrize("first_row", [-1, 2**32])
def test_a_row_that_would_be_taken_for_another_is_refused(first_row):
    with pytest.raises(ValueError, match=f"row {first_row}"):
        sample(prompt_of(4), seed=1, first_row=first_row)


def test_the_used_seed_is_in_the_trace():
    options = {"max_new_tokens": 5, "temperature": 1.5, "return_dict_in_generate": True}
    output = spd_lib.generate(tiny("llama"), torch.tensor([prompt_of(3)] * 2), **options)
    notes = output.traces[1].notes
    again = spd_lib.generate(
        tiny("llama"), torch.tensor([prompt_of(3)]), seed=notes["seed"], first_row=notes["row"], **options
    )
    assert again.sequences[0].equal(output.sequences[1])


# --- temperature, top-k, top-p


def test_one_greedy_gate_for_target_and_draft():
    prompt = prompt_of(5)
    greedy = list(reference_of("qwen3", tuple(prompt), 6))
    for temperature in (0.0, 1e-6, 9.9e-6):
        for drafter in ("random", "oracle", FromFlight(half_known)):
            assert sample(prompt, temperature=temperature, drafter=drafter) == [greedy]
    assert sample(prompt, temperature=1e-6, drafter="oracle", top_k=5, top_p=0.3) == [greedy]


def test_below_the_gate_the_draft_is_the_drafters_argmax():
    ids, logits = torch.tensor([4, 9, 2]), torch.tensor([0.0, 3.0, 2.9])
    sampler = Sampler.greedy(VOCAB, CPU)
    assert [sampler.draw(Proposal(ids, logits), position).token_id for position in range(20)] == [9] * 20


def test_drafts_go_through_the_same_temperature_and_limits():
    ids, logits = torch.tensor([4, 9, 2, 7]), torch.tensor([1.0, 3.0, 2.0, -1.0])
    rule = make_rule("rejection", seed=0, row=0, vocab_size=VOCAB, device=CPU)
    chain = [RepetitionPenaltyLogitsProcessor(2.0), *warpers(0.5, 3, None)]  # the penalty is the target's business
    drawn = Sampler(rule, chain, vocab_size=VOCAB, device=CPU).draw(Proposal(ids, logits), 8)
    expected = torch.tensor([1.0, 3.0, 2.0, -torch.inf]).double().div(0.5).softmax(0)
    torch.testing.assert_close(drawn.probabilities, expected)
    limited = Sampler(rule, warpers(1.0, 1, None), vocab_size=VOCAB, device=CPU)
    assert {limited.draw(Proposal(ids, logits), position).token_id for position in range(50)} == {9}


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}])
def test_a_single_candidate_is_greedy_too(options):
    prompt = prompt_of(5)
    assert sample(prompt, seed=3, **options) == [list(reference_of("qwen3", tuple(prompt), 6))]


def test_the_chain_is_in_transformers_order():
    names = [type(warper).__name__ for warper in warpers(0.7, 5, 0.9)]
    assert names == ["TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper"]


@pytest.mark.parametrize("top_k", [0, None, VOCAB, 10 * VOCAB])
def test_no_limit_is_no_limit(top_k):
    assert sample(prompt_of(5), seed=3, top_k=top_k, top_p=1.0) == sample(prompt_of(5), seed=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature must be a number ≥ 0 .0 is greedy., got -0.1"),
        ({"temperature": float("nan")}, "temperature must be a number ≥ 0 .0 is greedy., got nan"),
        ({"temperature": float("inf")}, "temperature must be a number ≥ 0 .0 is greedy., got inf"),
        ({"temperature": None}, "temperature must be a number ≥ 0 .0 is greedy., got None"),
        ({"top_k": -1}, "top_k must be ≥ 1, or 0 or None for no limit, got -1"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, r"top_p must be in \(0, 1\], got 1.5"),
        ({"top_p": float("nan")}, r"top_p must be in \(0, 1\], got nan"),
        ({"coupling": "maximal"}, "unknown coupling 'maximal'; the known ones are gumbel, rejection"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        sample(prompt_of(4), **options)


def test_wrong_settings_are_named_for_greedy_decoding_too():
    with pytest.raises(ValueError, match="top_k must be"):
        sample(prompt_of(4), temperature=0.0, top_k=-1)


def test_numpy_numbers_are_numbers():
    numpy = pytest.importorskip("numpy")
    options = {"temperature": numpy.float32(2.0), "seed": numpy.int64(3), "max_new_tokens": numpy.int64(6)}
    assert sample(prompt_of(4), **options) == sample(prompt_of(4), seed=3)


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_processors_come_before_the_warpers_and_only_on_the_target(coupling):
    """A penalty that drafts do not see costs acceptance and nothing else."""
    prompt, penalty = prompt_of(12), RepetitionPenaltyLogitsProcessor(3.0)
    options = {"seed": 4, "coupling": coupling, "logits_processor": [penalty], "temperature": 1.0, "top_k": 4}
    written = sample(prompt, **options)
    if coupling == "gumbel":
        rule = make_rule("gumbel", seed=4, row=0, vocab_size=VOCAB, device=CPU)
        sampler = Sampler(rule, [penalty, *warpers(1.0, 4, None)], vocab_size=VOCAB, device=CPU)
        assert written == [autoregressive(pipeline("qwen3", 1), sampler, prompt, 6).token_ids]
    assert written != sample(prompt, **options | {"logits_processor": []})


# --- the real model


REAL_TOKENS = 10
REAL_PROMPTS = ["The capital of France is", "def add(a, b):\n", "Once upon a time", "1, 2, 4, 8,"]


@pytest.fixture(scope="module")
def smollm2():
    return load("smollm2", device="cpu")


@pytest.mark.parametrize("seed", range(8))
def test_smollm2_writes_the_text_of_plain_sampling(smollm2, seed):
    prompt = smollm2.tokenizer(REAL_PROMPTS[seed % len(REAL_PROMPTS)])["input_ids"]
    options = [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.0, "top_k": 50}][seed % 3]
    vocab_size = smollm2.model.config.vocab_size
    rule = make_rule("gumbel", seed=seed, row=0, vocab_size=vocab_size, device=CPU)
    chain = warpers(options["temperature"], options.get("top_k"), options.get("top_p"))
    sampler = Sampler(rule, chain, vocab_size=vocab_size, device=CPU)
    plain = autoregressive(Pipeline(smollm2.model, 1), sampler, prompt, REAL_TOKENS).token_ids
    drafters: dict[int, Drafter] = {2: PromptLookup(), 5: Oracle(0.3, text=plain, seed=seed)}
    for num_stages, drafter in drafters.items():
        written = spd_lib.generate(
            smollm2.model, torch.tensor([prompt]), drafter=drafter, num_stages=num_stages, seed=seed,
            max_new_tokens=REAL_TOKENS, eos_token_id=[], **options,
        )  # fmt: skip
        assert written[0, len(prompt) :].tolist() == plain
