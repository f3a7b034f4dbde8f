"""The cycle: draft, advance, judge, and go on or flush."""

from __future__ import annotations

from collections.abc import Callable

from ..core.trace import Stopwatch, Trace, TraceBuilder, Verdict
from ..draft.proposal import Drafter, wanted_anchors
from ..target.flight import Flight, InFlight
from ..target.pipeline import Pipeline
from .sampling import Sampler
from .stopping import StopRule
from .verify import Draft

OnCommit = Callable[[int, str], None]


def decode(
    pipeline: Pipeline,
    drafter: Drafter,
    sampler: Sampler,
    stop: StopRule,
    prompt_ids: list[int],
    on_commit: OnCommit | None = None,
) -> Trace:
    """Writes one text by Speculative Pipeline Decoding (paper, section "Method") and returns its Trace.

    ``prompt_ids``: at least one id. ``on_commit(token_id, origin)`` hears of every committed token, in order, with
    the origin "prefill", "draft" or "correction". Ctrl-C ends the text with what is committed.
    """
    build, watch, flight = TraceBuilder(pipeline.num_stages, len(prompt_ids)), Stopwatch(), Flight(prompt_ids)

    def new(token_id: int, position: int, origin: str, drawn: Draft | None = None) -> InFlight:
        uid = build.token(position, origin, token_id, guess=drawn is not None and drawn.guess)
        return InFlight(token_id, position, uid, drawn)

    def commit(token: InFlight, origin: str) -> str | None:
        if on_commit is not None:
            on_commit(token.token_id, origin)
        return stop.reason(flight.ids[: token.position + 1])

    reason: str | None
    try:
        first = sampler.choose(pipeline.prefill(prompt_ids, wanted_anchors(drafter)), prompt_ids)
        drafter.begin(pipeline, prompt_ids)
        flight.admit(new(first, len(prompt_ids), "prefill"))
        reason = commit(flight.tokens[0], "prefill")
        while reason is None:
            newcomer = None
            if flight.next_position <= stop.last_position:
                with watch.lane("draft"):  # sees only what was known before the step, so it could run beside it
                    drawn = sampler.draw(drafter.propose(flight), flight.next_position)
                newcomer = new(drawn.token_id, flight.next_position, "draft", drawn)
            draft = None if newcomer is None else newcomer.uid
            standing = flight.standing(pipeline.num_stages)
            finished = pipeline.advance(flight, watch)
            if newcomer is not None:
                flight.admit(newcomer)
            if finished is None:  # the pipe is still filling
                build.cycle(standing, draft, spans=watch.take())
                continue
            judged = flight.behind(finished.token)
            with watch.lane("verify"):
                ruling = sampler.judge(finished.logits, flight.ids[: judged.position], judged.drawn)
            if ruling.accepted:
                verdict = Verdict(finished.token.uid, judged.uid, judged.uid)
                build.cycle(standing, draft, [verdict], spans=watch.take())
                reason = commit(judged, "draft")
            else:
                flushed = [token.uid for token in flight.tokens]
                correction = new(ruling.token_id, judged.position, "correction")
                verdict = Verdict(finished.token.uid, judged.uid, correction.uid)
                build.cycle(standing, draft, [verdict], flushed, watch.take())
                pipeline.rollback(to=judged.position)
                drafter.rollback(to=judged.position)
                flight.restart(correction)
                reason = commit(correction, "correction")
    except KeyboardInterrupt:
        reason = "interrupted"
    assert reason is not None
    return build.finish(reason)
