"""A figure with controls whose every state was drawn beforehand: choosing only shows another picture.

So it needs no kernel and no network, and nothing is computed in the page that Python has not computed before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import count, product

from .assets import asset
from .palette import css_text

_numbers = count()


def figure_name() -> str:
    """A name that no other figure of the page has: radio buttons of one name belong together."""
    return f"spd-figure-{next(_numbers)}"


def control(name: str, title: str, choices: Sequence[str], start: str) -> str:
    """One control of the figure ``name``: a group of radio buttons, so that the arrow keys work as everywhere."""
    radios = "".join(
        f'<label><input type="radio" name="{escape(f"{name}-{title}")}" value="{escape(choice)}"'
        f"{' checked' if choice == start else ''}>{escape(choice)}</label>"
        for choice in choices
    )
    return f"<fieldset><legend>{escape(title)}</legend>{radios}</fieldset>"


@dataclass(frozen=True)
class Picture:
    """One state of a figure: its HTML, and the same in words."""

    html: str
    words: str


@dataclass(frozen=True)
class Frames:
    """A figure with one group of choices a control. ``draw`` takes one choice of each and draws that state.

    What ``draw`` returns ``None`` for is no state, and the page does not offer it.
    ``start``: the choices it opens with; ``style``: CSS that its pictures need beyond that of all frames.
    """

    caption: str
    controls: Mapping[str, Sequence[str]]
    draw: Callable[..., Picture | None]
    hint: str
    start: tuple[str, ...]
    style: str = ""

    @cached_property
    def pictures(self) -> dict[tuple[str, ...], Picture]:
        """Every state."""
        drawn = ((choices, self.draw(*choices)) for choices in product(*self.controls.values()))
        return {choices: picture for choices, picture in drawn if picture is not None}

    def html(self) -> str:
        """The figure as one self-contained piece of HTML; without a script it shows its first state."""
        unique = list(dict.fromkeys([self.pictures[self.start], *self.pictures.values()]))
        index = {"|".join(choices): unique.index(picture) for choices, picture in self.pictures.items()}
        name = figure_name()
        opened = zip(self.controls.items(), self.start, strict=True)
        groups = "".join(control(name, title, choices, start) for (title, choices), start in opened)
        frames = "".join(
            f'<div class="spd-frame" role="img" aria-label="{escape(picture.words)}"{" hidden" if place else ""}>'
            f"{picture.html}</div>"
            for place, picture in enumerate(unique)
        )
        return (
            f'<div class="spd-frames" data-lm-suppress-shortcuts="true"><style>{css_text()}\n{asset("frames.css")}\n'
            f"{self.style}</style><figure><figcaption>{escape(self.caption)}</figcaption><form>{groups}</form>"
            f'<div class="spd-scroll" tabindex="0" role="group" aria-label="{escape(self.caption)}">{frames}</div>'
            f'</figure><p class="spd-words" aria-live="polite">{escape(unique[0].words)}</p>'
            f'<p class="spd-hint"><b>What to try.</b> {escape(self.hint)}</p>'
            f'<script type="application/json">{json.dumps(index)}</script>'
            f"<script>{asset('choices.js')}\n{asset('frames.js')}</script></div>"
        )

    def __str__(self) -> str:
        return f"{self.caption}\n{self.pictures[self.start].words}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}
