"""Keep every page free of remote addresses: drop the theme's unused Thebe bootstrap and scripts given twice."""

from typing import Any

from sphinx.application import Sphinx


def _clean(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    seen: set[tuple[str, str]] = set()
    kept = []
    for script in context.get("script_files") or ():
        name = str(getattr(script, "filename", "") or script)
        body = (getattr(script, "attributes", {}) or {}).get("body") or ""
        if "THEBE_JS_URL" in body or name.endswith("sphinx-thebe.js") or (body and (name, body) in seen):
            continue
        seen.add((name, body))
        kept.append(script)
    if kept:
        context["script_files"][:] = kept


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _clean, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
