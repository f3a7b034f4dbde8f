"""The record of one decoding run, cycle by cycle; every figure, metric and table about decoding reads a Trace.

The engine, the simulator and the baselines write it through :class:`TraceBuilder`. Two Traces are equal when the same
tokens stood in the same stages in the same cycles and met the same fate; token ids, texts, times and notes are carried
along but not compared, since a simulator knows none of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any

ORIGINS = ("prefill", "draft", "correction", "step")
STOP_REASONS = ("budget", "eos", "stop string", "criterion", "interrupted")
FORMAT = "spd-trace"


@dataclass(frozen=True)
class TracedToken:
    """One token that was generated or drafted. Its *uid* is its place in ``Trace.tokens``.

    ``origin``: "prefill" (the free first token), "draft", "correction" (the target's own choice after a rejection) or
    "step" (plain decoding). ``drafted_in``: the cycle in which it was drafted, for drafts only. ``guess``: the drafter
    had nothing better and fell back. A position can be drafted several times, so a position does not name a token.
    """

    position: int
    origin: str
    drafted_in: int | None = None
    guess: bool = field(default=False, compare=False)
    token_id: int | None = field(default=None, compare=False)
    text: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.origin not in ORIGINS:
            raise ValueError(f"origin must be one of {ORIGINS}, got {self.origin!r}")


@dataclass(frozen=True)
class Verdict:
    """The token ``judge`` left the last stage and its logits judged ``judged`` (both uids).

    ``committed`` is the uid of the token that was committed: the judged one, or the correction in its place.
    """

    judge: int
    judged: int
    committed: int

    @property
    def accepted(self) -> bool:
        """Whether the draft was what the target would have written."""
        return self.judged == self.committed


@dataclass(frozen=True)
class Span:
    """One measured piece of a cycle on one lane ("stage 0", "draft", "head", "verify"), in seconds from the start."""

    lane: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Cycle:
    """What happened in one cycle. All tokens are given by uid.

    ``stages[s]``: the tokens that stage s worked on (none when idle, one in SPD, a block in block speculation).
    ``draft``: the token drafted meanwhile, ``None`` if none was needed. ``flushed``: what was thrown away at its end.
    """

    stages: tuple[tuple[int, ...], ...]
    draft: int | None = None
    verdicts: tuple[Verdict, ...] = ()
    flushed: tuple[int, ...] = ()
    spans: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Trace:
    """A whole run: ``num_stages`` = n, ``prompt_length`` in tokens, every token, every cycle, why it stopped."""

    num_stages: int
    prompt_length: int
    tokens: tuple[TracedToken, ...]
    cycles: tuple[Cycle, ...]
    stop_reason: str
    notes: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.num_stages < 1:
            raise ValueError(f"num_stages must be at least 1, got {self.num_stages}")
        if self.stop_reason not in STOP_REASONS:
            raise ValueError(f"stop_reason must be one of {STOP_REASONS}, got {self.stop_reason!r}")

    @cached_property
    def committed(self) -> tuple[int, ...]:
        """The uids of the generated text, in order; the first one comes free from the prefill."""
        from_target = [uid for uid, token in enumerate(self.tokens) if token.origin in ("prefill", "step")]
        from_verdicts = [verdict.committed for cycle in self.cycles for verdict in cycle.verdicts]
        return tuple(sorted(from_target + from_verdicts, key=lambda uid: self.tokens[uid].position))

    @property
    def token_ids(self) -> list[int | None]:
        """The ids of the generated text."""
        return [self.tokens[uid].token_id for uid in self.committed]

    @cached_property
    def verdict_of(self) -> dict[int, tuple[int, Verdict]]:
        """uid of a judged token → (index of the judging cycle, verdict)."""
        return {v.judged: (index, v) for index, cycle in enumerate(self.cycles) for v in cycle.verdicts}

    @cached_property
    def flushed_in(self) -> dict[int, int]:
        """uid of a flushed token → index of the cycle that threw it away."""
        return {uid: index for index, cycle in enumerate(self.cycles) for uid in cycle.flushed}

    def fate(self, uid: int) -> str:
        """What became of a token.

        "committed", "corrected" (committed in place of a wrong draft), "rejected" (judged wrong), "flushed" (thrown
        away unjudged behind a rejected one) or "unjudged" (still in the pipe when the text ended).
        """
        if uid in self.flushed_in:
            return "rejected" if uid in self.verdict_of else "flushed"
        token = self.tokens[uid]
        if token.origin == "correction":
            return "corrected"
        return "committed" if token.origin != "draft" or uid in self.verdict_of else "unjudged"

    def with_texts(self, decode: Callable[[int], str]) -> Trace:
        """A copy in which every token has its text, ``decode(token_id)``."""
        named = tuple(t if t.token_id is None else replace(t, text=decode(t.token_id)) for t in self.tokens)
        return replace(self, tokens=named)

    def to_json(self) -> str:
        """The Trace as one JSON text; :meth:`from_json` reads it back."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Reads what :meth:`to_json` wrote. Raises ``ValueError`` for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"not a saved Trace: the key 'format' is not {FORMAT!r}")
        try:
            cycles = tuple(
                Cycle(
                    stages=tuple(tuple(stage) for stage in cycle["stages"]),
                    draft=cycle["draft"],
                    verdicts=tuple(Verdict(**verdict) for verdict in cycle["verdicts"]),
                    flushed=tuple(cycle["flushed"]),
                    spans=tuple(Span(**span) for span in cycle["spans"]),
                )
                for cycle in data.pop("cycles")
            )
            tokens = tuple(TracedToken(**token) for token in data.pop("tokens"))
            return cls(tokens=tokens, cycles=cycles, **data)
        except (KeyError, TypeError) as error:  # a key is missing, is too many, or holds another kind of thing
            raise ValueError(f"not a saved Trace: {error}") from error


class Stopwatch:
    """Measures the Spans of a run with the host's clock.

    On a GPU these are the times at which work was handed over, not done.
    """

    def __init__(self) -> None:
        self._origin_s = perf_counter()
        self._spans: list[Span] = []

    @contextmanager
    def lane(self, name: str) -> Iterator[None]:
        """Times what happens inside as one piece on the lane ``name``."""
        start_s = perf_counter() - self._origin_s
        yield
        self._spans.append(Span(name, start_s, perf_counter() - self._origin_s))

    def take(self) -> list[Span]:
        """The Spans since the last call."""
        taken, self._spans = self._spans, []
        return taken


class TraceBuilder:
    """Collects tokens and cycles while a run goes on; :meth:`finish` gives the Trace."""

    def __init__(self, num_stages: int, prompt_length: int, **notes: Any) -> None:
        self.num_stages = num_stages
        self.prompt_length = prompt_length
        self.notes = notes
        self._tokens: list[TracedToken] = []
        self._closed: list[tuple[Cycle, int]] = []  # each cycle with the number of tokens noted by its end

    @property
    def cycle_index(self) -> int:
        """Index of the cycle that is going on."""
        return len(self._closed)

    def token(self, position: int, origin: str, token_id: int | None = None, guess: bool = False) -> int:
        """Notes a new token and returns its uid."""
        drafted_in = self.cycle_index if origin == "draft" else None
        self._tokens.append(TracedToken(position, origin, drafted_in, guess, token_id))
        return len(self._tokens) - 1

    def cycle(
        self,
        stages: Sequence[Sequence[int]],
        draft: int | None = None,
        verdicts: Sequence[Verdict] = (),
        flushed: Sequence[int] = (),
        spans: Sequence[Span] = (),
    ) -> None:
        """Closes the cycle that is going on."""
        standing = tuple(tuple(stage) for stage in stages)
        cycle = Cycle(standing, draft, tuple(verdicts), tuple(flushed), tuple(spans))
        self._closed.append((cycle, len(self._tokens)))  # one step: Ctrl-C can come between any two

    def finish(self, stop_reason: str) -> Trace:
        """The finished Trace, without the draft or correction of a cycle that was broken off."""
        noted = self._closed[-1][1] if self._closed else 0
        lasting = [token for token in self._tokens[noted:] if token.origin in ("prefill", "step")]
        tokens, cycles = (*self._tokens[:noted], *lasting), tuple(cycle for cycle, _ in self._closed)
        return Trace(self.num_stages, self.prompt_length, tokens, cycles, stop_reason, self.notes)
