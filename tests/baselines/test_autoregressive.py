"""Plain decoding, which everything else is compared with, is itself compared with transformers' own forward."""

from __future__ import annotations

import pytest
import torch

from spd_lib.baselines import autoregressive
from spd_lib.core import metrics
from spd_lib.decode.sampling import Sampler, make_rule, warpers
from spd_lib.target import Pipeline

from ..families import FAMILIES, VOCAB, own_logits, prompt_of, reference_of, tiny

CPU = torch.device("cpu")


def greedy() -> Sampler:
    return Sampler.greedy(VOCAB, CPU)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [1, 9])
def test_greedy_text_is_the_models_own(family, length):
    prompt = prompt_of(length)
    trace = autoregressive(Pipeline(tiny(family), num_stages=2), greedy(), prompt, max_new_tokens=12)
    assert trace.token_ids == list(reference_of(family, tuple(prompt), 12))


@pytest.mark.parametrize("coupling", ["gumbel", "rejection"])
def test_sampled_text_is_drawn_from_the_models_own_logits(coupling):
    """Each token is what the rule chooses from a full forward of the model over the text so far."""
    model, prompt = tiny("qwen3"), prompt_of(5)
    rule = make_rule(coupling, seed=11, row=2, vocab_size=VOCAB, device=CPU)
    chain = warpers(temperature=0.8, top_k=20, top_p=None)
    trace = autoregressive(Pipeline(model), Sampler(rule, chain, vocab_size=VOCAB, device=CPU), prompt, 10)
    ids = list(prompt)
    for token_id in trace.token_ids:
        scores = own_logits(model, ids)[None] / 0.8
        kept = scores.topk(20).indices
        scores = torch.full_like(scores, -torch.inf).scatter(1, kept, scores.gather(1, kept))[0]
        assert rule.choose(scores, len(ids)) == token_id
        ids.append(token_id)


def test_trace_of_plain_decoding():
    trace = autoregressive(Pipeline(tiny("llama")), greedy(), prompt_of(4), max_new_tokens=6)
    assert (trace.num_stages, trace.stop_reason, trace.notes["decoder"]) == (1, "budget", "autoregressive")
    assert [token.origin for token in trace.tokens] == ["prefill"] + ["step"] * 5
    assert metrics.num_cycles(trace) == metrics.num_tokens(trace) - 1 == 5
    assert metrics.num_judged(trace) == 0
    ends = [span.end_s for cycle in trace.cycles for span in cycle.spans]
    assert len(ends) == 5 and ends == sorted(ends) and ends[0] > 0


def test_end_of_sequence():
    text = reference_of("llama", tuple(prompt_of(4)), 6)
    for token_id in text:
        trace = autoregressive(Pipeline(tiny("llama")), greedy(), prompt_of(4), 6, eos_token_ids=[VOCAB, token_id])
        assert trace.token_ids == list(text[: text.index(token_id) + 1]) and trace.stop_reason == "eos"


def test_one_token_takes_no_step():
    trace = autoregressive(Pipeline(tiny("llama")), greedy(), prompt_of(4), max_new_tokens=1)
    assert trace.cycles == () and trace.token_ids == list(reference_of("llama", tuple(prompt_of(4)), 1))
