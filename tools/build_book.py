"""Build the book: run the chapters that need it, stage the sources, let Sphinx write `_build/html`.

Nothing is done when nothing changed. Warnings fail the build, and every build starts afresh: an incremental one would
not repeat the warnings of pages that did not change.
"""

import shutil
import sys
import time
from pathlib import Path

import notebooks
from nbclient.exceptions import CellExecutionError

ROOT, BOOK = notebooks.ROOT, notebooks.BOOK
TREE = ROOT / "_build" / "tree"
HTML = ROOT / "_build" / "html"
STAMP = ROOT / "_build" / "html.key"
FOLDERS = ("book", "spd_lib", "results", "tools")
FILES = ("_config.yml", "_toc.yml", "CHANGELOG.md", "requirements.lock", "package-lock.json")


def stage(runs: list[Path]) -> None:
    """Lay out the source tree that Sphinx reads: prose, executed chapters, configuration, generated files."""
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(BOOK, TREE, ignore=shutil.ignore_patterns("*.ipynb", ".ipynb_checkpoints", "__pycache__"))
    for run in runs:
        shutil.copy(run, TREE)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, TREE)
    shutil.copy(ROOT / "CHANGELOG.md", TREE / "changelog.md")
    try:
        from spd_lib.show.palette import css_text
    except ImportError:
        return
    (TREE / "_static" / "palette.css").write_text(css_text(), encoding="utf-8")


def sphinx() -> bool:
    """Write the pages; true when there was neither an error nor a warning."""
    from jupyter_book.sphinx import build_sphinx

    shutil.rmtree(HTML, ignore_errors=True)
    result = build_sphinx(
        TREE,
        HTML,
        noconfig=True,
        path_config=TREE / "_config.yml",
        confoverrides={"nitpicky": True, "latex_individualpages": False},
        doctreedir=ROOT / "_build" / "doctrees",
        freshenv=True,
        warningiserror=True,
        keep_going=True,
        quiet=True,
    )
    return result == 0


def main() -> int:
    started = time.monotonic()
    inputs = notebooks.digest(notebooks.files_below(*FOLDERS, *FILES))
    page = HTML / "index.html"
    if not (page.exists() and STAMP.exists() and STAMP.read_text() == inputs):
        STAMP.unlink(missing_ok=True)
        try:
            runs = [notebooks.executed(path) for path in notebooks.chapters()]
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            return 1
        notebooks.forget(runs)
        stage(runs)
        if not sphinx():
            print("The book was not built: see the warnings above; each one fails the build.", file=sys.stderr)
            return 1
        STAMP.write_text(inputs)
        print(f"built in {time.monotonic() - started:.0f} s")
    print(f"The book: {page.as_uri()}    (or: make serve)")
    return 0


if __name__ == "__main__":
    with notebooks.alone():
        sys.exit(main())
