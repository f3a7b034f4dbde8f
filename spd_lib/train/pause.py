"""Long jobs stand still while a file named PAUSE lies in the cache folder, so that others can be timed in peace."""

from __future__ import annotations

import time
from pathlib import Path

from ..target.load import cache_folder

POLL_S = 2.0


def pause_file() -> Path:
    """The file whose existence pauses writing and training on this machine."""
    return cache_folder() / "PAUSE"


def wait_while_paused() -> float:
    """Returns when there is no PAUSE file, with the seconds spent waiting."""
    began_s = time.monotonic()
    while pause_file().exists():
        time.sleep(POLL_S)
    return time.monotonic() - began_s
