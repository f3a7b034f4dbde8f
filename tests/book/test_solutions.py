"""The folded solutions pass their checkers; what the reader starts from does not."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))


def exercises() -> list[tuple[str, str, str]]:
    """(chapter, the cell with the reader's stub and the checker, the solution) of each exercise with a checker."""
    found = []
    for chapter in CHAPTERS:
        cells = nbformat.read(chapter, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        for solution in re.findall(r":::\{solution\}.*?```python\n(.*?)```", text, flags=re.DOTALL):
            name = re.search(r"def (my_\w+)", solution)
            for cell in cells if name else []:
                if cell.cell_type == "code" and f"({name[1]})" in cell.source and "check_" in cell.source:
                    found.append((chapter.stem, cell.source, solution))
    return found


def said(capsys: pytest.CaptureFixture, code: str) -> str:
    exec(code, {})
    return capsys.readouterr().out


def test_every_chapter_has_an_exercise_with_a_checker() -> None:
    assert {chapter for chapter, _, _ in exercises()} == {chapter.stem for chapter in CHAPTERS}


@pytest.mark.parametrize("chapter, cell, solution", exercises(), ids=lambda text: text[:16].split("\n")[0])
def test_solution_passes_and_stub_does_not(
    capsys: pytest.CaptureFixture, chapter: str, cell: str, solution: str
) -> None:
    imports, call = re.match(r"(.*?)\n\n\ndef ", cell, flags=re.DOTALL)[1], cell.strip().splitlines()[-1]
    assert said(capsys, cell).startswith("✗")
    assert said(capsys, f"{imports}\n\n{solution}\n{call}").startswith("✓")
