"""The committed notebooks: clean, with enough compared cells, and a changed number does not go unnoticed."""

import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import notebooks  # noqa: E402

CHAPTERS = notebooks.chapters()
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)


def compared_cells(nb: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells whose stored output nbval compares."""
    return [c for c in notebooks.code_cells(nb) if c.outputs and not notebooks.tagged(c, notebooks.IGNORE)]


def text_of(output: nbformat.NotebookNode) -> str:
    return output.text if output.output_type == "stream" else output.data["text/plain"]


def with_one_number_changed(nb: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook up to its first compared cell that shows a number, with that number changed."""
    nb = copy.deepcopy(nb)
    for cell in compared_cells(nb):
        for output in cell.outputs:
            if re.search(r"\d", text_of(output)):
                changed = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), text_of(output), count=1)
                if output.output_type == "stream":
                    output.text = changed
                else:
                    output.data["text/plain"] = changed
                nb.cells = nb.cells[: nb.cells.index(cell) + 1]
                return nb
    raise AssertionError("no compared cell shows a number")


def test_there_are_chapters() -> None:
    assert CHAPTERS


@each_chapter
def test_clean(chapter: Path) -> None:
    assert not notebooks.complaints(notebooks.read(chapter))


@each_chapter
def test_at_least_three_compared_cells(chapter: Path) -> None:
    assert len(compared_cells(notebooks.read(chapter))) >= 3


@each_chapter
def test_starts_with_its_number_and_name(chapter: Path) -> None:
    assert re.match(rf"# {int(chapter.stem[:2])} \S", notebooks.read(chapter).cells[0].source)


@each_chapter
def test_a_changed_number_turns_nbval_red(chapter: Path, tmp_path: Path) -> None:
    for entry in ROOT.iterdir():
        if entry.name not in ("book", "_build", ".git", ".venv"):
            (tmp_path / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "book", tmp_path / "book", ignore=shutil.ignore_patterns("*.ipynb"))
    wrong = tmp_path / "book" / chapter.name
    nbformat.write(with_one_number_changed(notebooks.read(chapter)), wrong)
    command = [sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider", "-q", str(wrong)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 1 and re.search(r"\b1 failed", run.stdout), run.stdout[-2000:]


def test_the_key_of_a_run_covers_cells_but_not_outputs() -> None:
    nb = notebooks.read(CHAPTERS[0])
    key = notebooks.key(nb)
    for cell in notebooks.code_cells(nb):
        cell.outputs = []
    assert notebooks.key(nb) == key
    nb.cells[0].source += "."
    assert notebooks.key(nb) != key


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ({"output_type": "stream", "name": "stderr", "text": "10%"}, "stderr"),
        ({"output_type": "error", "ename": "ValueError", "evalue": "", "traceback": []}, "error"),
        ({"output_type": "display_data", "data": {"text/html": "<b>1</b>"}, "metadata": {}}, "text/html"),
        ({"output_type": "stream", "name": "stdout", "text": "<object at 0x7f01>"}, "address"),
    ],
)
def test_what_may_not_be_stored_is_named(output: dict, complaint: str) -> None:
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.from_dict(output)])
    nb = notebooks.clean(nbformat.v4.new_notebook(cells=[cell]))
    assert complaint in " ".join(notebooks.complaints(nb))
    cell.metadata["tags"] = [notebooks.IGNORE]
    assert not notebooks.complaints(notebooks.clean(nbformat.v4.new_notebook(cells=[cell])))
