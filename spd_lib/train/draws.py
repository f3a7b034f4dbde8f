"""What a training batch looks like: which texts, how many stages, which plan, how full the pipe."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.plan import Plan, balanced, even
from ..core.staircase import row_kinds
from .tokens import Conversation

POOL_BATCHES = 32  # texts of a length go together within a pool of so many batches


@dataclass(frozen=True)
class Moment:
    """A situation of the pipe that a batch is trained for."""

    plan: Plan
    fill: int
    window: int

    def kinds(self, anchors: Sequence[int]) -> tuple[int, ...]:
        """Kinds of the rows in flight, newest first."""
        return row_kinds(self.plan, anchors, self.fill)


@dataclass(frozen=True)
class MomentLaw:
    """How moments are drawn.

    Most drafts that are judged were made while the pipe was filling: the k-th one after a flush is judged only if the
    k − 1 before it were right. So the fill is drawn with P(k) ∝ p̂^(k − 1), capped at n, and at least
    ``full_share`` of the moments see a full pipe. Half of them look back over a shorter window, down to
    ``shortest_window``, since the beginning of a long text is out of sight.
    """

    num_layers: int
    head_cost: float
    window: int
    min_stages: int = 2
    max_stages: int = 16
    expected_acceptance: float = 0.6
    full_share: float = 0.1
    shortest_window: int = 32

    def draw(self, dice: random.Random) -> Moment:
        """One moment."""
        highest = min(self.max_stages, self.num_layers)
        num_stages = dice.randint(min(self.min_stages, highest), highest)
        window = self.window
        if dice.random() < 0.5:
            window = dice.randint(min(self.shortest_window, window), window)
        return Moment(self._plan(num_stages, dice), self._fill(num_stages, dice), window)

    def _plan(self, num_stages: int, dice: random.Random) -> Plan:
        kind = dice.random()
        if kind < 0.5:
            return even(self.num_layers, num_stages)
        if kind < 0.75:
            return balanced(self.num_layers, num_stages, self.head_cost)
        cuts = sorted(dice.sample(range(1, self.num_layers), num_stages - 1))
        return Plan((0, *cuts, self.num_layers), "random")

    def _fill(self, num_stages: int, dice: random.Random) -> int:
        if dice.random() < self.full_share:
            return num_stages
        fill = 1
        while fill < num_stages and dice.random() < self.expected_acceptance:
            fill += 1
        return fill


def batches(chats: Sequence[Conversation], batch_tokens: int, seed: str) -> Iterator[list[Conversation]]:
    """One epoch: texts in random order, those of a length together, at most ``batch_tokens`` with their padding."""
    dice = random.Random(seed)
    order = list(chats)
    dice.shuffle(order)
    average = sum(len(chat.ids) for chat in order) / len(order)
    pool = max(1, int(POOL_BATCHES * batch_tokens / average))
    for start in range(0, len(order), pool):
        made = list(cut(sorted(order[start : start + pool], key=lambda chat: len(chat.ids)), batch_tokens))
        dice.shuffle(made)
        yield from made


def cut(chats: list[Conversation], batch_tokens: int) -> Iterator[list[Conversation]]:
    """Neighbours of a list sorted by length: as many as fit into ``batch_tokens`` with their padding, one at least."""
    batch: list[Conversation] = []
    for chat in chats:
        if batch and (len(batch) + 1) * len(chat.ids) > batch_tokens:
            yield batch
            batch = []
        batch.append(chat)
    if batch:
        yield batch
