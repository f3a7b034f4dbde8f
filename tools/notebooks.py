"""Run the chapters and keep their notebooks clean.

    python tools/notebooks.py            run what changed and store clean outputs in book/
    python tools/notebooks.py --check    run nothing; fail if a notebook is not clean

A run is kept in `_build/executed/<key>/`, where the key covers the cells, the library, its weights and the locked
versions: Jupyter's own caches do not notice that a library changed. A clean notebook has cells counted 1, 2, 3 ...,
deterministic text as its only outputs, and nothing stored for cells tagged `nbval-ignore-output`, so that diffs stay
readable and `pytest --nbval` has something to compare.
"""

import argparse
import contextlib
import copy
import fcntl
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
EXECUTED = ROOT / "_build" / "executed"
IGNORE = "nbval-ignore-output"
TEXT = {"text/plain"}  # the only kind of result a compared cell may store
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
DEPENDS = ("spd_lib", "book/data", "results", "requirements.lock", "requirements-weights.txt")


def chapters() -> list[Path]:
    """All notebooks of the book, in reading order."""
    return sorted(BOOK.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def files_below(*names: str) -> list[Path]:
    """The files under the named files and folders of the repository, sorted, without caches."""
    found: set[Path] = set()
    for name in names:
        path = ROOT / name
        found |= set(path.rglob("*")) if path.is_dir() else {path}
    caches = {"__pycache__", ".ipynb_checkpoints"}
    return sorted(f for f in found if f.is_file() and not caches & set(f.parts))


def digest(files: Iterable[Path], *more: str) -> str:
    """A short hash over names and contents of the files, and any further text."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    for text in more:
        total.update(text.encode() + b"\0")
    return total.hexdigest()[:16]


def key(nb: NotebookNode) -> str:
    """What a run of this notebook depends on; stored outputs are not part of it."""
    cells = [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in nb.cells]
    return digest(files_below(*DEPENDS), json.dumps(cells))


@functools.cache
def prepare_weights() -> None:
    """Convert the default target's weights if nobody has done so yet, outside of any notebook.

    The first load of all says where its cache is and shows progress: nothing for a page.
    """
    subprocess.run([sys.executable, "-c", "import spd_lib; spd_lib.load('smollm2', device='cpu')"], check=True)


def executed(path: Path) -> Path:
    """The executed copy of a notebook; runs it on the CPU, without network, if there is none yet."""
    nb = read(path)
    copy_path = EXECUTED / key(nb) / path.name
    if copy_path.exists():
        return copy_path
    started = time.monotonic()
    for name, value in OFFLINE.items():
        os.environ.setdefault(name, value)
    prepare_weights()
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(
        nb,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--IPKernelApp.log_level=40"],
    ).execute()
    number(nb)
    copy_path.parent.mkdir(parents=True, exist_ok=True)
    partial = copy_path.with_suffix(".partial")
    nbformat.write(nb, partial)
    partial.replace(copy_path)
    print(f"ran {path.name} in {time.monotonic() - started:.1f} s", flush=True)
    return copy_path


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One run at a time: two builds would remove each other's files."""
    EXECUTED.mkdir(parents=True, exist_ok=True)
    with open(EXECUTED.parent / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget(keep: Iterable[Path]) -> None:
    """Remove executed copies that no current notebook needs."""
    wanted = set(keep)
    for old in EXECUTED.glob("*/*.ipynb"):
        if old not in wanted:
            old.unlink()
    for folder in EXECUTED.glob("*"):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def tagged(cell: NotebookNode, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    return [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]


def number(nb: NotebookNode) -> None:
    """Count executed cells 1, 2, 3 ..., and join the pieces in which a stream arrived."""
    for count, cell in enumerate(code_cells(nb), start=1):
        cell.execution_count = count
        joined: list[NotebookNode] = []
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            previous = joined[-1] if joined else None
            if previous and output.output_type == previous.output_type == "stream" and output.name == previous.name:
                previous.text += output.text
            else:
                joined.append(output)
        cell.outputs = joined


def clean(nb: NotebookNode) -> NotebookNode:
    """The form in which a notebook is committed."""
    nb = copy.deepcopy(nb)
    nb.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.cells = [c for c in nb.cells if c.source.strip()]
    for index, cell in enumerate(nb.cells):
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        cell.id = f"cell-{index:02d}"
        if cell.cell_type == "code" and tagged(cell, IGNORE):
            cell.outputs = []
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
    number(nb)
    return nb


def complaints(nb: NotebookNode) -> list[str]:
    """Why this notebook cannot be committed as it is; empty when it is clean."""
    found = []
    for count, cell in enumerate(code_cells(nb), start=1):
        for output in cell.outputs:
            kinds = set(output.get("data", ()))
            if output.output_type == "error":
                found.append(f"cell {count}: a stored error, {output.ename}")
            elif output.get("name") == "stderr":
                found.append(f"cell {count}: writes to stderr (a warning, a progress bar?); tag it {IGNORE}")
            elif not kinds <= TEXT:
                found.append(f"cell {count}: stores {', '.join(sorted(kinds - TEXT))}; tag it {IGNORE}")
            elif " at 0x" in "".join([output.get("text", ""), output.get("data", {}).get("text/plain", "")]):
                found.append(f"cell {count}: prints an address in memory")
    if not found and nbformat.writes(clean(nb)) != nbformat.writes(nb):
        found.append("counts, ids, metadata or ignored outputs are not in the committed form: run `make notebooks`")
    return found


def store(path: Path) -> list[str]:
    """Run a notebook if needed and write its clean form back; returns what is wrong with it."""
    nb = clean(read(executed(path)))
    nbformat.write(nb, path)
    return complaints(nb)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="run nothing; fail if a notebook is not clean")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of book/")
    arguments = parser.parse_args()
    failed = False
    for path in [p.resolve() for p in arguments.notebooks] or chapters():
        try:
            wrong = complaints(read(path)) if arguments.check else store(path)
        except CellExecutionError as error:
            wrong = [f"a cell failed\n{error}"]
        for complaint in wrong:
            print(f"{path.name}: {complaint}", file=sys.stderr)
        failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    with alone():
        sys.exit(main())
