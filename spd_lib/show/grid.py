"""The pipe grid: stages down, cycles across, one cell a token, coloured and hatched by what became of it.

It is plain HTML with its own style and script inside, so it lives in a notebook, in the built book and in a file alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from spd_lib.core.trace import Trace

from .assets import asset
from .life import VISIBLE, Lives
from .palette import css_text, style
from .table import counts, cycle_formula, pipe_text, shown_cycles

HINT = "Point at a token, or press Tab and move with the arrow keys, to read its life here."
SIDEWAYS = "The grid scrolls sideways."
FITS = 8  # cycles that a page shows without scrolling
LEGEND = {
    "committed": "committed",
    "corrected": "correction",
    "rejected": "judged wrong",
    "wasted": "flushed unjudged",
    "in-flight": "not judged",
    "idle": "idle",
}


@dataclass(frozen=True)
class PipeGrid:
    """A pipe that a notebook can show: HTML where there is a browser, characters elsewhere."""

    trace: Trace
    caption: str
    max_cycles: int | None = None

    def html(self) -> str:
        """The grid as one self-contained piece of HTML."""
        return _Page(self).render()

    def __str__(self) -> str:
        return f"{self.caption}\n{pipe_text(self.trace, self.max_cycles)}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


def pipe_grid(trace: Trace, caption: str = "The pipe, cycle by cycle", max_cycles: int | None = None) -> PipeGrid:
    """The pipe of ``trace`` to look at and to move in; of a long one the first ``max_cycles`` cycles."""
    shown_cycles(trace, max_cycles)  # complains about a senseless max_cycles now, not when the notebook draws
    return PipeGrid(trace, caption, max_cycles)


def _text(label: str) -> str:
    """A cell's label, the signs that stand for white space set apart."""
    signs = set(VISIBLE.values())
    return "".join(f"<i>{c}</i>" if c in signs else escape(c) for c in label)


class _Page:
    """Writes one grid; holds what its pieces share."""

    def __init__(self, grid: PipeGrid) -> None:
        self.trace = grid.trace
        self.caption = grid.caption
        self.lives = Lives(grid.trace)
        self.shown, self.rest = shown_cycles(grid.trace, grid.max_cycles)
        self.cuts = {index + 1 for index, cycle in enumerate(self.trace.cycles) if cycle.flushed}

    def render(self) -> str:
        formula = cycle_formula(self.trace)
        hint = HINT if self.shown <= FITS else f"{HINT} {SIDEWAYS}"
        pieces = [
            f'<div class="spd-pipe" data-lm-suppress-shortcuts="true"><style>{css_text()}\n{asset("grid.css")}</style>',
            f"<figure><figcaption>{escape(self.caption)}</figcaption>",
            f'<div class="spd-scroll">{self.table()}</div></figure>',
            f'<p class="spd-line" aria-live="polite" data-hint="{hint}">{hint}</p>',
            self.legend(),
            f'<p class="spd-counts">{escape(" ".join(filter(None, [self.rest, counts(self.trace)])))}.</p>',
            f'<p class="spd-formula">{escape(formula)}</p>' if formula else "",
            self.words(),
            f"<script>{asset('grid.js')}</script></div>",
        ]
        return "\n".join(filter(None, pieces))

    def table(self) -> str:
        cycles = range(self.shown + 1)
        heads = "".join(f'<th role="columnheader" scope="col"{self.cut(cycle)}>{cycle}</th>' for cycle in cycles)
        rows = [self.row("draft", "draft", [self.draft_cell(cycle) for cycle in cycles])]
        for stage in range(self.trace.num_stages):
            rows.append(self.row("stage", f"stage {stage}", [self.stage_cell(cycle, stage) for cycle in cycles]))
        rows.append(self.row("text", "text", [self.text_cell(cycle) for cycle in cycles]))
        body = "\n".join(rows).replace('tabindex="-1"', 'tabindex="0"', 1)
        return (
            f'<table role="grid" aria-readonly="true" aria-label="{escape(self.caption)}">'
            f'<thead><tr role="row"><th role="columnheader" scope="col">cycle</th>{heads}</tr></thead>\n'
            f"<tbody>{body}</tbody></table>"
        )

    def row(self, lane: str, name: str, cells: list[str]) -> str:
        head = f'<th role="rowheader" scope="row">{name}</th>'
        return f'<tr role="row" class="spd-lane-{lane}">{head}{"".join(cells)}</tr>'

    def cut(self, cycle: int) -> str:
        """The class that draws the line behind a cycle which flushed the pipe."""
        return ' class="spd-cut"' if cycle in self.cuts else ""

    def draft_cell(self, cycle: int) -> str:
        if cycle == 0:
            return self.empty(cycle, "The prefill reads the whole prompt at once.")
        draft = self.trace.cycles[cycle - 1].draft
        return self.idle(cycle, self.lives.draft_reason(cycle)) if draft is None else self.cell(cycle, (draft,))

    def stage_cell(self, cycle: int, stage: int) -> str:
        if cycle == 0:
            return self.empty(cycle, "The prefill reads the whole prompt at once.")
        uids = self.trace.cycles[cycle - 1].stages[stage]
        return self.cell(cycle, uids) if uids else self.idle(cycle, self.lives.idle_reason(cycle, stage))

    def text_cell(self, cycle: int) -> str:
        uids = tuple(self.lives.written[cycle])
        return (
            self.cell(cycle, uids, lane="text")
            if uids
            else self.empty(cycle, f"Cycle {cycle} adds nothing to the text.")
        )

    def empty(self, cycle: int, why: str) -> str:
        return f'<td role="gridcell" tabindex="-1"{self.cut(cycle)} aria-label="{escape(why)}"></td>'

    def idle(self, cycle: int, why: str) -> str:
        glyph = style("idle").glyph
        return (
            f'<td role="gridcell" tabindex="-1"{self.cut(cycle)} aria-label="{escape(why)}">'
            f'<b class="spd-t spd-idle">{glyph}</b></td>'
        )

    def cell(self, cycle: int, uids: tuple[int, ...], lane: str = "") -> str:
        verdicts = self.trace.cycles[cycle - 1].verdicts if cycle and lane != "text" else ()
        judged_now = {v.judged: v.accepted for v in verdicts}
        judges = [str(v.judged) for v in verdicts if v.judge in uids]
        label = ", ".join(self.spoken(uid, judged_now.get(uid)) for uid in uids)
        judging = f' data-judges="{" ".join(judges)}"' if judges else ""
        chips = "".join(self.chip(uid, judged_now.get(uid)) for uid in uids)
        return (
            f'<td role="gridcell" tabindex="-1"{self.cut(cycle)} data-u="{" ".join(map(str, uids))}"{judging} '
            f'aria-label="{escape(label)}">{chips}</td>'
        )

    def spoken(self, uid: int, verdict: bool | None) -> str:
        now = "" if verdict is None else ", judged right now" if verdict else ", judged wrong now"
        # Says what the cell shows, cut as there: a spoken name that differs from the seen one confuses voice control.
        seen = self.lives.label(uid) if self.trace.tokens[uid].text is not None else self.lives.name(uid)
        return f"{seen}, {self.trace.fate(uid)}{now}"

    def chip(self, uid: int, verdict: bool | None) -> str:
        mark = "" if verdict is None else " spd-right" if verdict else " spd-wrong"
        return f'<b class="spd-t spd-{style(self.trace.fate(uid)).name}{mark}">{_text(self.lives.label(uid))}</b>'

    def legend(self) -> str:
        words = "".join(f'<span class="spd-word spd-{name}">{word}</span> ' for name, word in LEGEND.items())
        return f'<p class="spd-legend">{words}✓ ✗ the token below judged this one; cycle 0 is the prefill.</p>'

    def words(self) -> str:
        """Every life in a folded list: for reading without pointing, and where the script takes its sentences from."""
        lines = "".join(
            f'<li data-u="{uid}">{escape(self.lives.sentence(uid))}</li>' for uid in range(len(self.trace.tokens))
        )
        return f"<details><summary>Every token in words</summary><ul>{lines}</ul></details>"
