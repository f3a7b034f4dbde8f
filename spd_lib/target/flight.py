"""The queue of tokens in flight, one per stage, and the text that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .layers import Features


@dataclass
class InFlight:
    """A token in the pipe.

    ``depth``: stages passed, 0 … n. ``hidden``: [1, 1, hidden_size], the output of the last stage passed, ``None`` at
    depth 0. ``uid``: its name in the Trace. ``drawn``: what the sampler wants back when the token is judged.
    ``features``: its hidden states at the anchors that the drafter wants, as far as its stages have passed them.
    """

    token_id: int
    position: int
    uid: int
    drawn: Any = None
    depth: int = 0
    hidden: Tensor | None = None
    features: Features = field(default_factory=dict)


class Flight:
    """Tokens in flight, oldest first, and all ids up to the newest: prompt, committed, in flight.

    Positions in flight are consecutive; the oldest token and everything before it are committed.
    """

    def __init__(self, prompt_ids: list[int]) -> None:
        self.ids = list(prompt_ids)
        self.tokens: list[InFlight] = []

    @property
    def next_position(self) -> int:
        """The position that a draft would take."""
        return len(self.ids)

    @property
    def fill(self) -> int:
        """Tokens in flight."""
        return len(self.tokens)

    def admit(self, token: InFlight) -> None:
        """Puts a new token behind the newest one."""
        if token.position != self.next_position:
            raise ValueError(f"position {token.position} cannot follow position {self.next_position - 1}")
        self.ids.append(token.token_id)
        self.tokens.append(token)

    def restart(self, token: InFlight) -> None:
        """Throws away everything from ``token.position`` on and goes on with ``token`` alone."""
        del self.ids[token.position :]
        self.tokens.clear()
        self.admit(token)

    def finish(self) -> InFlight:
        """Takes the oldest token out of the pipe."""
        return self.tokens.pop(0)

    def behind(self, finished: InFlight) -> InFlight:
        """The token that ``finished`` judges: its successor, now the oldest in flight."""
        successor = self.tokens[0]
        assert successor.position == finished.position + 1
        return successor

    def standing(self, num_stages: int) -> list[tuple[int, ...]]:
        """For each stage the uids it works on in this cycle."""
        by_depth = {token.depth: (token.uid,) for token in self.tokens}
        return [by_depth.get(stage, ()) for stage in range(num_stages)]
