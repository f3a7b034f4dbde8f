"""What is said about a token, word for word, and why a stage has no work."""

import pytest

from spd_lib.core import coin_flips, simulate
from spd_lib.core.trace import TraceBuilder
from spd_lib.show.life import Lives, columns, shorten, visible

from .traces import random_trace, worked_example

SENTENCES = {
    0: "'A' (position 1): came free from the prefill, entered stage 0 in cycle 1, left the last stage in cycle 4 and "
    "judged 'b'; part of the text, the target's own choice.",
    1: "'b' (position 2): drafted in cycle 1, entered stage 0 in cycle 2, left the last stage in cycle 5 and judged "
    "'c'; judged right in cycle 4 by 'A'.",
    2: "'c' (position 3): drafted in cycle 2, entered stage 0 in cycle 3; judged wrong in cycle 5 by 'b': 'C' was "
    "written instead.",
    3: "'d' (position 4): drafted in cycle 3, entered stage 0 in cycle 4; thrown away unjudged in cycle 5, because 'c' "
    "before it was wrong.",
    5: "'f' (position 6): drafted in cycle 5, entered no stage; thrown away unjudged in cycle 5, because 'c' before it "
    "was wrong.",
    6: "'C' (position 3): written in cycle 5 instead of 'c', entered stage 0 in cycle 6, left the last stage in cycle "
    "9 and judged 'g'; part of the text, the target's own choice.",
    8: "'h' (position 5): drafted in cycle 7, entered stage 0 in cycle 8; not judged before the run ended.",
}


@pytest.mark.parametrize("uid", SENTENCES)
def test_sentences(uid: int) -> None:
    assert Lives(worked_example()).sentence(uid) == SENTENCES[uid]


def test_sentence_without_texts() -> None:
    lives = Lives(simulate([True, False, True], num_stages=4, num_tokens=4, budget=40))
    assert lives.sentence(2) == (
        "Position 3: drafted in cycle 2, entered stage 0 in cycle 3; judged wrong in cycle 5 by the token at position "
        "2: the target's own choice was written instead."
    )


def test_plain_decoding() -> None:
    build = TraceBuilder(num_stages=2, prompt_length=3)
    first = build.token(3, "prefill")
    build.cycle([[first], []])
    build.cycle([[], [first]])
    second = build.token(4, "step")
    build.cycle([[second], []])
    lives = Lives(build.finish("budget"))
    assert lives.sentence(second) == (
        "Position 4: written in cycle 2, entered stage 0 in cycle 3; part of the text, the target's own choice."
    )
    assert lives.idle_reason(1, 1) == "Stage 1 is idle in cycle 1: plain decoding has one token at a time."
    assert lives.draft_reason(1) == "Nothing is drafted in cycle 1: this run has no drafter."


@pytest.mark.parametrize(
    ("cycle", "stage", "why"),
    [
        (1, 1, "the pipe is filling for the first time"),
        (3, 3, "the pipe is filling for the first time"),
        (6, 1, "the pipe fills again after the flush in cycle 5"),
        (8, 3, "the pipe fills again after the flush in cycle 5"),
    ],
)
def test_idle_reason(cycle: int, stage: int, why: str) -> None:
    assert Lives(worked_example()).idle_reason(cycle, stage) == f"Stage {stage} is idle in cycle {cycle}: {why}."


def test_idle_at_the_end_of_the_budget() -> None:
    lives = Lives(simulate([True] * 5, num_stages=3, num_tokens=6))
    assert lives.idle_reason(7, 0) == "Stage 0 is idle in cycle 7: the text was long enough, no draft was needed."
    assert lives.draft_reason(7) == "Nothing is drafted in cycle 7: the text was long enough."


@pytest.mark.parametrize("num_stages", [1, 2, 3, 5, 8])
def test_idle_reasons_are_true(num_stages: int) -> None:
    """A stage refills after a flush exactly where a pipe that had never been flushed would have been busy."""
    for seed in range(5):
        trace = random_trace(seed, num_stages)
        lives = Lives(trace)
        for index, cycle in enumerate(trace.cycles):
            for stage, uids in enumerate(cycle.stages):
                if not uids:
                    first_fill = index < stage
                    assert ("for the first time" in lives.idle_reason(index + 1, stage)) == first_fill


@pytest.mark.parametrize("seed", range(4))
def test_every_token_is_written_once(seed: int) -> None:
    trace = simulate(coin_flips(0.6, seed), 4, 12)
    written = [uid for uids in Lives(trace).written.values() for uid in uids]
    assert written == list(trace.committed)


def test_labels() -> None:
    assert visible(" a\n\tb\r\x00") == "␣a↵⇥b␍\\u0000"
    assert shorten("Internationalization") == "Interna…"
    assert shorten("日本語日本語") == "日本語…" and columns("日本語") == 6
    assert shorten("eight888") == "eight888"
    assert columns("e\u0301") == 1
