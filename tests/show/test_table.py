"""The pipe in characters against tables written by hand."""

import pytest

from spd_lib.core import simulate
from spd_lib.core.trace import TraceBuilder
from spd_lib.show.life import columns
from spd_lib.show.table import counts, cycle_formula, pipe_text

from .traces import random_trace, with_texts, worked_example

WORKED = """\
cycle    0  1  2   3   4   5   6   7   8   9
draft       b  c✗  d~  e~  f~  g   h?  i?  j?
stage 0     A  b   c✗  d~  e~  C*  g   h?  i?
stage 1     ·  A   b   c✗  d~  ·   C*  g   h?
stage 2     ·  ·   A   b   c✗  ·   ·   C*  g
stage 3     ·  ·   ·   A   b   ·   ·   ·   C*
verdict                ✓   ✗               ✓
text     A             b   C*              g

x committed, x* correction, x✗ judged wrong, x~ flushed, x? not judged, · idle; cycle 0 is the prefill
stages n = 4, tokens N = 4, cycles K = 9, refills R = 1; 2 of 3 judged drafts right, acceptance rate 0.67
K = n + (N − 2) + (n − 1)·R = 4 + 2 + 3·1 = 9"""

ONE_STAGE = """\
cycle    0  1  2
draft       6  7✗
stage 0     5  6
verdict     ✓  ✗
text     5  6  7*

x committed, x* correction, x✗ judged wrong, x~ flushed, x? not judged, · idle; cycle 0 is the prefill
stages n = 1, tokens N = 3, cycles K = 2, refills R = 0; 1 of 2 judged drafts right, acceptance rate 0.50
K = n + (N − 2) + (n − 1)·R = 1 + 1 + 0·0 = 2"""


def test_worked_example() -> None:
    assert pipe_text(worked_example()) == WORKED


def test_one_stage() -> None:
    assert pipe_text(simulate([True, False], num_stages=1, num_tokens=3, prompt_length=5)) == ONE_STAGE


def test_first_cycles() -> None:
    lines = pipe_text(worked_example(), max_cycles=4).splitlines()
    assert lines[0] == "cycle    0  1  2   3   4"
    assert lines[9] == "The first 4 of 9 cycles; 5 more are not drawn."
    assert lines[-1].endswith("= 9"), "the counts speak of the whole run"
    with pytest.raises(ValueError, match="max_cycles must be at least 1, got 0"):
        pipe_text(worked_example(), max_cycles=0)


@pytest.mark.parametrize("width", [40, 100])
def test_long_tables_are_wrapped(width: int) -> None:
    trace = with_texts(random_trace(1, 4, 40), [" the", " Internationalization", "\n", "日本語", "</script><b>"])
    table = pipe_text(trace, width=width).split("\n\nx committed")[0]
    blocks = table.split("\n\n")
    assert len(blocks) > 2
    assert all(columns(line) <= width for line in table.splitlines())
    heads = [int(head) for block in blocks for head in block.splitlines()[0].split()[1:]]
    assert heads == list(range(len(trace.cycles) + 1))


def test_text_of_one_token() -> None:
    trace = simulate([], num_stages=3, num_tokens=1)
    assert pipe_text(trace).splitlines()[0] == "cycle    0"
    assert cycle_formula(trace) is None
    assert counts(trace).endswith("0 of 0 judged drafts right")


def test_no_formula_for_blocks_and_broken_runs() -> None:
    build = TraceBuilder(num_stages=1, prompt_length=1)
    pair = [build.token(1, "prefill"), build.token(2, "draft")]
    build.cycle([pair])
    assert cycle_formula(build.finish("interrupted")) is None
