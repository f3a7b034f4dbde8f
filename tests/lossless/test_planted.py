"""Bugs planted on purpose: each of them turns the suite red, so its green means something."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spd_lib.decode.sampling import Sampler
from spd_lib.target import Flight, InFlight, Pipeline
from spd_lib.target.layers import Decoder
from spd_lib.target.state import AttentionMemory

from ..families import FAMILIES, WINDOW, WINDOWED
from .cases import Case, mismatch

N = 3
DRAFTED = ((4,), "oracle .3", "oracle 1")
CASES = {
    family: [Case(family, N, "even", drafter, 7, seed) for drafter in DRAFTED for seed in (1, 2)] for family in FAMILIES
}
Bug = Callable[[pytest.MonkeyPatch], None]


def one_step_too_few_at(stage: int) -> Bug:
    """Stage ``stage`` undoes one step less than it should after a rejection."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def rollback(self: Pipeline, to: int) -> None:
            for index, each in enumerate(self.stages):
                each.state.rollback(min(to + (index == stage and to > 0), each.state.length))

        patch.setattr(Pipeline, "rollback", rollback)

    return plant


def nothing_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Rollback does nothing within a text."""
    whole = Pipeline.rollback
    patch.setattr(Pipeline, "rollback", lambda self, to: whole(self, to) if to == 0 else None)


def forgets_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """Rollback also forgets the token that judged."""
    whole = Pipeline.rollback
    patch.setattr(Pipeline, "rollback", lambda self, to: whole(self, max(0, to - 1)))


def judges_the_one_after(patch: pytest.MonkeyPatch) -> None:
    """The logits of a token judge not its successor but the one behind that."""

    def behind(self: Flight, finished: InFlight) -> InFlight:
        return self.tokens[min(1, len(self.tokens) - 1)]

    patch.setattr(Flight, "behind", behind)


def judges_itself(patch: pytest.MonkeyPatch) -> None:
    """The logits of a token judge the token itself."""
    patch.setattr(Flight, "behind", lambda self, finished: finished)


def accepts_everything(patch: pytest.MonkeyPatch) -> None:
    """Every draft passes."""
    judge = Sampler.judge

    def lenient(self: Sampler, logits, prefix, draft):
        ruling = judge(self, logits, prefix, draft)
        return type(ruling)(True, draft.token_id)

    patch.setattr(Sampler, "judge", lenient)


def draft_survives_the_rejection(patch: pytest.MonkeyPatch) -> None:
    """After a rejection the draft made in the same cycle enters the pipe behind the correction."""
    restart = Flight.restart

    def lenient(self: Flight, token: InFlight) -> None:
        newest = self.tokens[-1]
        restart(self, token)
        self.admit(InFlight(newest.token_id, self.next_position, newest.uid, newest.drawn))

    patch.setattr(Flight, "restart", lenient)


def younger_tokens_survive_the_rejection(patch: pytest.MonkeyPatch) -> None:
    """After a rejection only the rejected token is replaced; those behind it stay in their stages."""

    def lenient(self: Flight, token: InFlight) -> None:
        self.ids[token.position] = token.token_id
        token.depth, token.hidden = self.tokens[0].depth, self.tokens[0].hidden
        self.tokens[0] = token

    patch.setattr(Flight, "restart", lenient)
    patch.setattr(Pipeline, "rollback", lambda self, to: None if to else [s.state.rollback(0) for s in self.stages])


def window_off_by(shift: int) -> Bug:
    """Sliding layers see ``shift`` tokens more than they may (fewer, if negative), in single steps."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        write = AttentionMemory.write

        def shifted(self: AttentionMemory, start, keys, values):
            true = self.window
            self.window = None if true is None else true + shift
            try:
                return write(self, start, keys, values)
            finally:
                self.window = true

        patch.setattr(AttentionMemory, "write", shifted)

    return plant


def prefill_window_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """Sliding layers see one token too many while a prompt is read."""
    mask = Decoder._mask

    def shifted(self: Decoder, count, start, window, hidden):
        return mask(self, count, start, None if window is None else window + 1, hidden)

    patch.setattr(Decoder, "_mask", shifted)


EVERYWHERE: dict[str, Bug] = {
    **{f"one step too few at stage {stage}": one_step_too_few_at(stage) for stage in range(N - 1)},
    "nothing forgotten": nothing_forgotten,
    "forgets one too many": forgets_one_too_many,
    "judges the one after": judges_the_one_after,
    "judges itself": judges_itself,
    "accepts everything": accepts_everything,
    "draft survives the rejection": draft_survives_the_rejection,
    "younger tokens survive the rejection": younger_tokens_survive_the_rejection,
}
WHERE_WINDOWS_ARE: dict[str, Bug] = {
    "window one too long": window_off_by(1),
    "window one too short": window_off_by(-1),
    "window one too long in prefill": prefill_window_off_by_one,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_bug_there_is_no_mismatch(family: str) -> None:
    """The same cases are green with nothing planted."""
    assert mismatch(CASES[family]) is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bug", EVERYWHERE)
def test_bug_is_found(bug: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every family, by a false text, a false Trace or a crash."""
    EVERYWHERE[bug](monkeypatch)
    assert mismatch(CASES[family]) is not None


@pytest.mark.parametrize("bug", ["one step too few at stage 0", "nothing forgotten", "accepts everything"])
def test_bug_changes_the_text(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the text that gives these away, not merely the Trace."""
    EVERYWHERE[bug](monkeypatch)
    found = [mismatch(CASES[family]) for family in FAMILIES]
    assert all(message is not None and "the model alone writes" in message for message in found), found


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("bug", WHERE_WINDOWS_ARE)
def test_wrong_window_is_found(bug: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With texts beyond the window."""
    cases = [Case(family, N, "even", "oracle 1", 2 * WINDOW, seed) for seed in range(4)]
    assert mismatch(cases) is None
    WHERE_WINDOWS_ARE[bug](monkeypatch)
    assert mismatch(cases) is not None
