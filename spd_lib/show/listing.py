"""Shows the library's own source in a chapter, so that what is explained is what runs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from .assets import asset
from .palette import css_text


@dataclass(frozen=True)
class Listing:
    """The source ``code`` of the thing called ``name``, e.g. ``spd_lib.core.plan.even``."""

    name: str
    code: str

    def html(self) -> str:
        """The source with its name as a caption, coloured where Pygments is at hand."""
        return (
            f'<div class="spd-listing"><style>{css_text()}\n{asset("listing.css")}</style>'
            f"<figure><figcaption>{escape(self.name)}</figcaption>{_highlighted(self.code)}</figure></div>"
        )

    def __str__(self) -> str:
        return f"# {self.name}\n{self.code}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


def source(obj: Callable[..., Any] | type) -> Listing:
    """The source of a function or a class, to be shown by a notebook."""
    code = textwrap.dedent(inspect.getsource(obj)).rstrip()
    return Listing(f"{obj.__module__}.{obj.__qualname__}", code)


def _highlighted(code: str) -> str:
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        inner = escape(code)
    else:
        inner = highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()
    return f'<pre tabindex="0"><code>{inner}</code></pre>'
