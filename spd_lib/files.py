"""Files that are whole or absent, and places that are asked before the work rather than after it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A place to write to that becomes ``path`` when all is written; after an error ``path`` is as it was before.

    What is no ordinary file, a pipe or /dev/null, is written to directly.
    """
    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """Raises ``OSError`` naming the place if no file can be written to ``path``; leaves nothing behind."""
    if path.is_dir() or not path.name:
        raise IsADirectoryError(f"{str(path)!r} is a folder: name a file in it")
    if not path.exists() or path.is_file():
        check_folder(path.resolve().parent)


def check_folder(path: Path) -> None:
    """Raises ``OSError`` naming the place if no file can be written into the folder ``path``, or if it cannot be made.

    Leaves nothing behind.
    """
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"cannot write into {str(path)!r}: {str(there)!r} is a file")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(f"cannot write into {str(path)!r}: {error.strerror}") from error
