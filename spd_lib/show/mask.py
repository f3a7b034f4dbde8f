"""The training mask and its twin: what each position may read in training, and the same moment of a running pipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import product

from spd_lib.core.plan import NAMED_PLANS, Plan, make_plan
from spd_lib.core.staircase import row_kinds, standing

from .assets import asset
from .frames import control, figure_name
from .palette import css_text

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # one sign a token, one sign a kind
UNSEEN, IDLE = "·", "-"
HINT = (
    "Choose a query: its row holds what the run beside it offers, token by token. Then 1 in flight: only the diagonal "
    "is young. Then a window of 3: what is older is out of sight, in training and at work."
)


@dataclass(frozen=True)
class Scene:
    """How the pipe is cut and filled when the drafter asks, and how far it looks back (tokens, the newest included)."""

    plan: Plan
    fill: int
    window: int

    def mask_row(self, anchors: Sequence[int], query: int) -> str:
        """Training: for the keys 0 … ``query`` the kind of the row that the query reads, one sign each."""
        kinds = row_kinds(self.plan, anchors, self.fill)
        row = ""
        for distance in range(query, -1, -1):
            kind = kinds[distance] if distance < len(kinds) else len(anchors) - 1
            row += self._sign(kind, distance)
        return row

    def run(self, anchors: Sequence[int], newest: int) -> str:
        """At work: for each stage, then for each finished token, youngest first, a token and the kind of its row.

        Two signs each; two dashes for an idle stage.
        """
        kinds = row_kinds(self.plan, anchors, self.fill)
        told = ""
        for stage, token in enumerate(standing(newest, self.fill, self.plan.num_stages)):
            idle = token is None or token < 0  # before the start of the text
            told += 2 * IDLE if idle else DIGITS[newest - stage] + self._sign(kinds[stage], stage)
        for token in range(newest - self.fill, -1, -1):
            told += DIGITS[token] + self._sign(len(anchors) - 1, newest - token)
        return told

    def _sign(self, kind: int, distance: int) -> str:
        return DIGITS[kind] if distance < self.window else UNSEEN


@dataclass(frozen=True)
class State:
    """One state of the figure: for each query its row of the mask, and the run in the same moment."""

    mask: tuple[str, ...]
    run: tuple[str, ...]
    num_stages: int


@dataclass(frozen=True)
class MaskExplorer:
    """The mask as a table with a query row to choose, and beside it the pipe in the same moment.

    All states are computed here; the page only looks them up.
    """

    num_layers: int
    anchors: tuple[int, ...]
    head_cost: float
    tokens: int
    stages: tuple[int, ...]

    @property
    def controls(self) -> dict[str, list[str]]:
        """What can be chosen besides the query row."""
        fills = [str(fill) for fill in range(1, max(self.stages) + 1)]
        windows = [str(self.tokens), str(self.tokens // 2), str(self.tokens // 4)]
        return {"n": list(map(str, self.stages)), "plan": list(NAMED_PLANS), "in flight": fills, "window": windows}

    @property
    def start(self) -> tuple[str, ...]:
        """The choices it opens with."""
        n = self.stages[len(self.stages) // 2]
        return (str(n), "even", str(min(3, n)), str(self.tokens))

    @property
    def query(self) -> int:
        """The query row it opens with."""
        return self.tokens // 2 + 1

    @cached_property
    def states(self) -> dict[tuple[str, ...], State]:
        """Mask rows and runs for every choice that exists."""
        found: dict[tuple[str, ...], State] = {}
        for n, plan, fill, window in product(*self.controls.values()):
            if int(fill) > int(n):  # a pipe of n stages holds n tokens
                continue
            cut = make_plan(plan, self.num_layers, int(n), self.head_cost)
            scene = Scene(cut, int(fill), int(window))
            queries = range(self.tokens)
            found[n, plan, fill, window] = State(
                tuple(scene.mask_row(self.anchors, query) for query in queries),
                tuple(scene.run(self.anchors, query) for query in queries),
                cut.num_stages,
            )
        return found

    @property
    def offers(self) -> dict[str, str]:
        """What a row of each sign holds."""
        kinds = {DIGITS[kind]: f"anchors 0–{anchor}" for kind, anchor in enumerate(self.anchors)}
        return {**kinds, DIGITS[0]: "embedding", DIGITS[len(self.anchors) - 1]: "all layers", UNSEEN: "out of sight"}

    @property
    def looks(self) -> dict[str, str]:
        """The style of each sign."""
        last = DIGITS[len(self.anchors) - 1]
        between = dict.fromkeys(DIGITS[1 : len(self.anchors) - 1], "spd-in-flight")
        return {DIGITS[0]: "spd-draft", **between, last: "spd-committed", UNSEEN: "spd-idle"}

    def html(self) -> str:
        """The figure as one self-contained piece of HTML; without a script it shows its first state."""
        name = figure_name()
        opened = zip(self.controls.items(), self.start, strict=True)
        groups = "".join(control(name, title, choices, start) for (title, choices), start in opened)
        state = self.states[self.start]
        return (
            f'<div class="spd-frames spd-mask" data-lm-suppress-shortcuts="true"><style>{css_text()}\n'
            f"{asset('frames.css')}\n{asset('mask.css')}</style><figure><figcaption>One training forward, and the same "
            f'moment of a run</figcaption><form>{groups}<div class="spd-pair">{self._mask(name, state.mask)}'
            f"{self._run(state)}</div></form></figure>{self._legend()}"
            f'<p class="spd-hint"><b>What to try.</b> {escape(HINT)}</p>'
            f'<script type="application/json">{self._data()}</script>'
            f"<script>{asset('choices.js')}\n{asset('mask.js')}</script></div>"
        )

    def _data(self) -> str:
        unique = list(dict.fromkeys(self.states.values()))
        index = {"|".join(choices): unique.index(state) for choices, state in self.states.items()}
        states = [[state.mask, state.run, state.num_stages] for state in unique]
        data = {"index": index, "states": states, "looks": self.looks, "offers": self.offers, "digits": DIGITS}
        return json.dumps(data, separators=(",", ":"), ensure_ascii=False)

    def _mask(self, name: str, rows: Sequence[str]) -> str:
        heads = "".join(f'<th scope="col">{key}</th>' for key in range(self.tokens))
        body = ""
        for query, row in enumerate(rows):
            on = query == self.query
            radio = (
                f'<input type="radio" name="{name}-query" value="{query}" data-query aria-label="query {query}"'
                f"{' checked' if on else ''}>"
            )
            cells = "".join(f'<td class="{self.looks[sign]}">{sign}</td>' for sign in row)
            empty = "<td></td>" * (self.tokens - query - 1)
            head = f'<th scope="row"><label>{radio}{query}</label></th>'
            body += f"<tr{' class=spd-on' if on else ''}>{head}{cells}{empty}</tr>"
        return (
            '<section aria-label="Training mask"><p><b>Training:</b> query row, key column</p><div class="spd-scroll">'
            f'<table><thead><tr><th scope="col">query</th>{heads}</tr></thead><tbody class="spd-queries">{body}</tbody>'
            "</table></div></section>"
        )

    def _run(self, state: State) -> str:
        pairs = state.run[self.query]
        flying = sum(token != IDLE for token in pairs[: 2 * state.num_stages : 2])  # a pipe of n stages holds at most n
        body = "".join(
            self._place(place, state.num_stages, *pairs[2 * place : 2 * place + 2]) for place in range(len(pairs) // 2)
        )
        return (
            '<section aria-label="The same moment of a run" aria-live="polite"><p><b>At work:</b> newest token '
            f'<span class="spd-newest">{self.query}</span>, <span class="spd-flying">{flying}</span> in flight</p>'
            '<div class="spd-scroll"><table><thead>'
            '<tr class="spd-run-head"><th scope="col">in</th><th scope="col">token</th><th scope="col">kind</th>'
            f'<th scope="col">offers</th></tr></thead><tbody class="spd-run">{body}</tbody></table></div></section>'
        )

    def _place(self, place: int, num_stages: int, token: str, sign: str) -> str:
        where = f"stage {place}" if place < num_stages else "done"
        if token == IDLE:
            return f'<tr><th scope="row">{where}</th><td>–</td><td></td><td>idle</td></tr>'
        return (
            f'<tr><th scope="row">{where}</th><td>{DIGITS.index(token)}</td><td class="{self.looks[sign]}">{sign}</td>'
            f"<td>{self.offers[sign]}</td></tr>"
        )

    def _legend(self) -> str:
        last = len(self.anchors) - 1
        words = {
            "draft": "0 embedding only",
            "in-flight": f"1–{last - 1} some layers",
            "committed": f"{last} all layers",
            "idle": f"{UNSEEN} out of the window",
        }
        swatches = "".join(f'<span class="spd-word spd-{look}">{word}</span> ' for look, word in words.items())
        return f'<p class="spd-legend">Kinds of row: {swatches}</p>'

    def __str__(self) -> str:
        rows = self.states[self.start].mask
        told = "\n".join(f"query {query:2}  {' '.join(row)}" for query, row in enumerate(rows))
        return f"Training mask, kinds of the rows read: n = {self.start[0]}, {self.start[2]} in flight\n{told}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


def mask_explorer(
    num_layers: int,
    anchors: Sequence[int],
    head_cost: float,
    tokens: int = 12,
    stages: Sequence[int] = (2, 4, 8),
) -> MaskExplorer:
    """The training mask of ``tokens`` positions for several n, both plans, every fill and three windows.

    ``head_cost``, in layers, is what the `balanced` plan counts for the head.
    """
    if not 4 <= tokens <= len(DIGITS) or len(anchors) > len(DIGITS):
        raise ValueError(f"tokens must be between 4 and {len(DIGITS)}, and at most {len(DIGITS)} anchors; got {tokens}")
    return MaskExplorer(num_layers, tuple(anchors), head_cost, tokens, tuple(stages))
