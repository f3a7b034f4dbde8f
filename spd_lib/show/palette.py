"""The one visual language of the book: what each colour, hatch and glyph means, on paper, on screen and in a terminal.

Eight names. Each has a light and a dark shade, a hatch, a glyph and a sentence, so that nothing is said by colour
alone. The hues stay apart for readers who do not see red and green apart, and every text keeps a contrast of 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from .assets import asset


@dataclass(frozen=True)
class Shade:
    """One style in one theme, as ``#rrggbb``.

    ``fill``: the inside of a cell; ``hatch``: the lines on it; ``text``: words on both; ``line``: its border, and the
    colour of words on the bare page.
    """

    fill: str
    hatch: str
    text: str
    line: str


@dataclass(frozen=True)
class Style:
    """A named style.

    ``chart``: a colour that stands out on the light and on the dark page, for charts, which cannot follow the theme;
    ``hatch``: name of the pattern; ``border``: CSS border style; ``ansi``: code of the terminal's graphic rendition.
    """

    name: str
    light: Shade
    dark: Shade
    chart: str
    hatch: str
    border: str
    glyph: str
    ansi: str
    sentence: str

    def shade(self, dark: bool) -> Shade:
        """The colours of one theme."""
        return self.dark if dark else self.light


@dataclass(frozen=True)
class Page:
    """What the styles stand on: background, body text, quiet text, thin rules."""

    background: str
    text: str
    muted: str
    rule: str


LIGHT = Page("#ffffff", "#1f2328", "#57606a", "#d0d7de")
DARK = Page("#14181e", "#e6edf3", "#9da7b3", "#3d444d")

# hatch name → (CSS background, Plotly marker pattern)
HATCHES = {
    "solid": ("none", ""),
    "diagonal": ("repeating-linear-gradient(135deg,transparent 0 5px,var(--spd-hatch) 5px 8px)", "/"),
    "cross": (
        "repeating-linear-gradient(45deg,transparent 0 5px,var(--spd-hatch) 5px 6px),"
        "repeating-linear-gradient(135deg,transparent 0 5px,var(--spd-hatch) 5px 6px)",
        "x",
    ),
    "horizontal": ("repeating-linear-gradient(0deg,transparent 0 4px,var(--spd-hatch) 4px 6px)", "-"),
    "dots": ("radial-gradient(circle,var(--spd-hatch) 1px,transparent 1.4px) 0 0/7px 7px", "."),
}

_STYLES = (
    Style(
        "committed",
        Shade("#1b6aa8", "#1b6aa8", "#ffffff", "#175b91"),
        Shade("#2470ae", "#2470ae", "#ffffff", "#6cb6ff"),
        "#2470ae",
        "solid", "solid", "✓", "36",
        "Part of the text for good: the target itself would have written this token.",
    ),
    Style(
        "in-flight",
        Shade("#e1effb", "#e1effb", "#15476f", "#2f6f9f"),
        Shade("#16293c", "#16293c", "#b8dcff", "#7ab8ea"),
        "#4a93cf",
        "solid", "dashed", "?", "4;36",
        "On its way through the stages, not judged yet.",
    ),
    Style(
        "draft",
        Shade("#efe6fa", "#efe6fa", "#4b2a7b", "#7347ad"),
        Shade("#2b2040", "#2b2040", "#dcc9ff", "#b794f4"),
        "#8f63cc",
        "solid", "dotted", "◇", "35",
        "A guess of the drafter, made while the stages work.",
    ),
    Style(
        "judged",
        Shade("#1f2328", "#1f2328", "#ffffff", "#1f2328"),
        Shade("#f0f3f6", "#f0f3f6", "#14181e", "#f0f3f6"),
        "#7d8590",
        "solid", "double", "▲", "1;4",
        "Compared with what the target would have written, by the token that leaves the last stage.",
    ),
    Style(
        "wasted",
        Shade("#fdece5", "#f8d5c6", "#7d2a10", "#ad4f33"),
        Shade("#33201a", "#4a2c22", "#ffc9b3", "#d98a6e"),
        "#c9765a",
        "diagonal", "solid", "~", "2;9;31",
        "Thrown away unjudged, because a token before it was wrong: work for nothing.",
    ),
    Style(
        "rejected",
        Shade("#c0391b", "#a82f14", "#ffffff", "#b0341a"),
        Shade("#bf4023", "#a5341a", "#ffffff", "#ff8a66"),
        "#c9462a",
        "cross", "solid", "✗", "1;9;31",
        "Judged and found wrong: the target would have written something else.",
    ),
    Style(
        "idle",
        Shade("#f6f8fa", "#dde2e7", "#57606a", "#6a737d"),
        Shade("#1a1f26", "#2e353e", "#9da7b3", "#8b949e"),
        "#868e96",
        "dots", "dotted", "·", "2",
        "A stage without work, because the pipe is filling.",
    ),
    Style(
        "corrected",
        Shade("#f5bd41", "#ecae28", "#2b1d00", "#875800"),
        Shade("#e3a92f", "#d0981f", "#1f1500", "#f0b94a"),
        "#b9820f",
        "horizontal", "double", "*", "1;33",
        "Written by the target in place of a wrong draft; the pipe starts anew behind it.",
    ),
)  # fmt: skip

PALETTE: dict[str, Style] = {style.name: style for style in _STYLES}

FATE_STYLES = {
    "committed": "committed",
    "corrected": "corrected",
    "rejected": "rejected",
    "flushed": "wasted",
    "unjudged": "in-flight",
}


def style(name: str) -> Style:
    """The style called ``name``, which may also be a fate of :meth:`spd_lib.core.Trace.fate`."""
    try:
        return PALETTE[FATE_STYLES.get(name, name)]
    except KeyError:
        raise ValueError(f"unknown style {name!r}; the styles are {', '.join(PALETTE)}") from None


def terminal(name: str, text: str) -> str:
    """``text`` in the terminal style ``name``, as an ANSI sequence that ends with a reset."""
    return f"\x1b[{style(name).ansi}m{text}\x1b[0m"


def _variables(dark: bool) -> str:
    page = DARK if dark else LIGHT
    pairs = [("page", page.background), ("ink", page.text), ("muted", page.muted), ("rule", page.rule)]
    for each in _STYLES:
        shade = each.shade(dark)
        for part in ("fill", "hatch", "text", "line"):
            pairs.append((f"{each.name}-{part}", getattr(shade, part)))
    return "".join(f"--spd-{name}:{value};" for name, value in pairs)


def _class_rule(each: Style) -> str:
    parts = "".join(f"--spd-{part}:var(--spd-{each.name}-{part});" for part in ("fill", "hatch", "text", "line"))
    return f".spd-{each.name}{{{parts}--spd-border:{each.border};--spd-pattern:{HATCHES[each.hatch][0]}}}"


# Themes as the book, JupyterLab, VS Code and Colab announce them; the system's wish counts only where nobody else says.
_DARK_PAGES = (
    'html[data-theme="dark"],html[theme="dark"],body[data-jp-theme-light="false"],'
    'body[data-vscode-theme-kind="vscode-dark"],body[data-vscode-theme-kind="vscode-high-contrast"]'
)
_UNSAID = "html:not([data-theme]):not([theme]) body:not([data-jp-theme-light]):not([data-vscode-theme-kind])"


def css_text() -> str:
    """The palette as CSS: variables for light and dark, one class a style, and coloured words for prose.

    A word is ``<span class="spd-word spd-committed">committed</span>``: bold, in its colour, behind a swatch with its
    hatch.
    """
    return "\n".join(
        [
            f":root{{{_variables(dark=False)}}}",
            f"{_DARK_PAGES}{{{_variables(dark=True)}}}",
            f"@media (prefers-color-scheme: dark){{{_UNSAID}{{{_variables(dark=True)}}}}}",
            *(_class_rule(each) for each in _STYLES),
            asset("palette.css"),
        ]
    )
