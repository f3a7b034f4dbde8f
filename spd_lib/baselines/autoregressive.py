"""Plain decoding: one token, one pass through all layers, and again. The text that SPD has to reproduce."""

from __future__ import annotations

from collections.abc import Collection
from time import perf_counter

from ..core.trace import Span, Trace, TraceBuilder
from ..decode.sampling import Sampler
from ..decode.stopping import StopRule
from ..target.pipeline import Pipeline


def autoregressive(
    pipeline: Pipeline,
    sampler: Sampler,
    prompt_ids: list[int],
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
) -> Trace:
    """Decodes one token at a time with the layers of ``pipeline`` and returns a Trace of one stage.

    Uses neither flight nor engine nor drafter; with the same sampler it writes the text that every exact decoder must
    write. K = N − 1: the first token comes from the prefill.
    """
    stop = StopRule(len(prompt_ids), max_new_tokens, eos_token_ids)
    build = TraceBuilder(1, len(prompt_ids), decoder="autoregressive")
    ids = list(prompt_ids)
    began_s = perf_counter()
    logits = pipeline.prefill(ids)
    token_id = sampler.choose(logits, ids)
    uid = build.token(len(ids), "prefill", token_id)
    ids.append(token_id)
    while (reason := stop.reason(ids)) is None:
        start_s = perf_counter() - began_s
        token_id = sampler.choose(pipeline.step(token_id), ids)
        build.cycle([(uid,)], spans=[Span("stage 0", start_s, perf_counter() - began_s)])
        uid = build.token(len(ids), "step", token_id)
        ids.append(token_id)
    return build.finish(reason)
