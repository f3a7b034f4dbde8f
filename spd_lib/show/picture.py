"""The pipe as one still SVG, for pages that run no script: the README, slides, a printed text."""

from __future__ import annotations

from html import escape

from spd_lib.core.trace import Trace

from .life import Lives, columns
from .palette import DARK, LIGHT, PALETTE, Style, style
from .table import counts, shown_cycles

ROW, GAP, HEAD, NAMES = 30, 4, 30, 72  # heights of a row and of the head, gap between cells, width of the row names
CHAR = 7.4  # width of a character in the cells' font
DASHES = {"solid": "", "dashed": ' stroke-dasharray="4 3"', "dotted": ' stroke-dasharray="1.5 3"', "double": ""}
HATCH_PATHS = {
    "diagonal": "M-2,8 L8,-2 M3,13 L13,3",
    "cross": "M0,0 L10,10 M10,0 L0,10",
    "horizontal": "M0,2 L10,2 M0,7 L10,7",
    "dots": "M3,3 h1 M8,8 h1",
}
LEGEND = (
    ("committed", "committed"),
    ("corrected", "correction"),
    ("rejected", "judged wrong"),
    ("wasted", "flushed"),
    ("in-flight", "not judged"),
    ("idle", "idle"),
)


def pipe_svg(trace: Trace, dark: bool = False, max_cycles: int | None = None) -> str:
    """The pipe of ``trace`` as the text of an SVG file; ``dark`` for dark pages."""
    return _Picture(trace, dark, max_cycles).render()


class _Picture:
    """Draws one picture; holds its measures and colours."""

    def __init__(self, trace: Trace, dark: bool, max_cycles: int | None) -> None:
        self.trace, self.dark = trace, dark
        self.page = DARK if dark else LIGHT
        self.lives = Lives(trace)
        self.shown, self.rest = shown_cycles(trace, max_cycles)
        self.widths = [max(map(self.lane_width, self.lanes(cycle))) for cycle in self.cycles]
        self.lefts = [NAMES + sum(self.widths[:cycle]) + GAP * cycle for cycle in self.cycles]
        self.bottom = HEAD + ROW * (trace.num_stages + 2) + 12
        self.width = max(self.lefts[-1] + self.widths[-1] + 12, 560.0)

    @property
    def cycles(self) -> range:
        return range(self.shown + 1)

    def lanes(self, cycle: int) -> list[tuple[int, ...]]:
        """The tokens in each lane of ``cycle``, from the draft down to the text."""
        written = tuple(self.lives.written[cycle])
        if cycle == 0:
            return [()] * (self.trace.num_stages + 1) + [written]
        record = self.trace.cycles[cycle - 1]
        return [() if record.draft is None else (record.draft,), *record.stages, written]

    def lane_width(self, uids: tuple[int, ...]) -> float:
        return max(36.0, sum(16 + CHAR * columns(self.lives.label(uid)) for uid in uids))

    def render(self) -> str:
        lanes = ["draft", *(f"stage {stage}" for stage in range(self.trace.num_stages)), "text"]
        names = [self.text(12, self.middle(row), lane, self.page.muted) for row, lane in enumerate(lanes)]
        body = [piece for cycle in self.cycles for piece in self.draw_cycle(cycle)]
        height = self.bottom + 34
        told = escape(f"A pipe, cycle by cycle: {counts(self.trace)}. {self.rest}".strip())
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {height}" '
                f'width="{self.width:.0f}" height="{height}" role="img" aria-label="{told}" '
                'font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="13">',
                f"<title>{told}</title>",
                f"<defs>{''.join(self.pattern(each) for each in PALETTE.values() if each.hatch in HATCH_PATHS)}</defs>",
                f'<rect width="100%" height="100%" rx="10" fill="{self.page.background}"/>',
                self.text(12, 20, "cycle", self.page.muted),
                *names,
                *map(self.rule, (HEAD - 2, HEAD + ROW, HEAD + ROW * (self.trace.num_stages + 1) + 4)),
                *body,
                self.legend(),
                "</svg>",
                "",
            ]
        )

    def pattern(self, each: Style) -> str:
        hatch = each.shade(self.dark).hatch
        return (
            f'<pattern id="{each.name}" width="10" height="10" patternUnits="userSpaceOnUse">'
            f'<path d="{HATCH_PATHS[each.hatch]}" stroke="{hatch}" stroke-width="2"/></pattern>'
        )

    def middle(self, row: int) -> float:
        """Baseline of the words in a row; row 0 is the draft lane, the last one the text."""
        return self.top(row) + ROW / 2 + 3

    def top(self, row: int) -> float:
        return HEAD + ROW * row + (2 if row == 0 else 4 if row <= self.trace.num_stages else 8)

    def rule(self, y: float) -> str:
        return f'<path d="M12,{y} H{self.lefts[-1] + self.widths[-1]:.0f}" stroke="{self.page.rule}"/>'

    def text(self, x: float, y: float, words: str, color: str, more: str = "") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{more}>{escape(words)}</text>'

    def draw_cycle(self, cycle: int) -> list[str]:
        left, width = self.lefts[cycle], self.widths[cycle]
        pieces = [self.text(left + width / 2, 20, str(cycle), self.page.muted, ' text-anchor="middle"')]
        badges = []
        verdicts = self.trace.cycles[cycle - 1].verdicts if cycle else ()
        for row, uids in enumerate(self.lanes(cycle)):
            in_pipe = cycle > 0 and row <= self.trace.num_stages
            for place, uid in enumerate(uids or ((None,) if in_pipe else ())):
                step = width / max(1, len(uids))
                pieces.append(self.cell(left + place * step, step, row, uid))
                right = left + (place + 1) * step
                badges += [self.badge(right, row, v.accepted) for v in verdicts if in_pipe and v.judged == uid]
        if cycle and self.trace.cycles[cycle - 1].flushed:
            x, color = left + width + GAP / 2, PALETTE["rejected"].shade(self.dark).line
            pieces.append(f'<path d="M{x:.1f},{HEAD - 18} V{self.bottom}" stroke="{color}" stroke-dasharray="5 4"/>')
        return pieces + badges

    def cell(self, left: float, width: float, row: int, uid: int | None) -> str:
        each = style("idle" if uid is None else self.trace.fate(uid))
        label = each.glyph if uid is None else self.lives.label(uid)
        middle = self.text(
            left + width / 2, self.middle(row), label, each.shade(self.dark).text,
            ' text-anchor="middle" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
            'font-size="12" font-weight="600"',
        )  # fmt: skip
        return self.box(each, left, self.top(row), width, ROW - 6, 12 if row == 0 else 5) + middle

    def box(self, each: Style, x: float, y: float, width: float, height: float, radius: float) -> str:
        shade = each.shade(self.dark)
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="{radius}"'
        edge = self.page.rule if each.name == "idle" else shade.line
        thick = 2.5 if each.border == "double" else 1.3
        hatch = f'<rect {place} fill="url(#{each.name})"/>' if each.hatch in HATCH_PATHS else ""
        outline = f'<rect {place} fill="none" stroke="{edge}" stroke-width="{thick}"{DASHES[each.border]}/>'
        return f'<rect {place} fill="{shade.fill}"/>{hatch}{outline}'

    def badge(self, right: float, row: int, accepted: bool) -> str:
        shade = PALETTE["judged" if accepted else "rejected"].shade(self.dark)
        x, y = right - 3, self.top(row) + ROW - 4
        # Drawn, not written: a picture cannot count on a font that has the signs.
        mark = "m-3.2,.2 l2.2,2.4 l4.2,-5" if accepted else "m-2.6,-2.6 l5.2,5.2 m0,-5.2 l-5.2,5.2"
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" stroke-width="2" fill="{shade.fill}" '
            f'stroke="{self.page.background}"/>'
            f'<path d="M{x:.1f},{y:.1f} {mark}" fill="none" stroke="{shade.text}" stroke-width="1.7"/>'
        )

    def legend(self) -> str:
        pieces, x, y = [], 12.0, self.bottom + 18
        for name, words in LEGEND:
            pieces.append(self.box(PALETTE[name], x, y - 10, 12, 12, 3))
            pieces.append(self.text(x + 18, y, words, self.page.text, ' font-size="12"'))
            x += 36 + 6.4 * len(words)
        return "".join(pieces)
