"""Files that are whole or absent, and places that are asked before the work rather than after it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

_numbers = count()  # of temporary files in this process


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A place to write to that becomes ``path`` when all is written; after an error ``path`` is as it was before.

    What is no ordinary file, a pipe or /dev/null, is written to directly.
    """
    place = Path(os.path.realpath(path))  # a link stays one
    ordinary = place.is_file() or not place.exists()
    writable = place.with_name(f".{os.getpid()}-{next(_numbers)}.tmp") if ordinary else place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield writable
        if ordinary:
            writable.replace(place)
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        if ordinary:
            writable.unlink(missing_ok=True)


def check_file(path: Path, *read: Path) -> None:
    """Raises ``OSError`` naming the place if no file can be written to ``path``; leaves nothing behind.

    ``read``: files that the same work reads, which it must not write over.
    """
    if path.is_dir() or not path.name:
        raise IsADirectoryError(f"{str(path)!r} is a folder: name a file in it")
    if any(path.exists() and other.exists() and path.samefile(other) for other in read):
        raise FileExistsError(f"{str(path)!r} is what is read here: name another file to write")
    if not path.exists() or path.is_file():
        check_folder(Path(os.path.realpath(path)).parent)


def check_folder(path: Path) -> None:
    """Raises ``OSError`` naming the place if no file can be written into the folder ``path``, or if it cannot be made.

    Leaves nothing behind.
    """
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"cannot write into {str(path)!r}: the link leads nowhere")
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"cannot write into {str(path)!r}: {str(there)!r} is a file")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(f"cannot write into {str(path)!r}: {error.strerror}") from error
