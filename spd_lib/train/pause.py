"""How long jobs stop: they stand still while a file named PAUSE lies in the cache folder, and Ctrl-C waits for a step.

The file lets others be timed in peace.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from ..target.load import cache_folder

POLL_S = 2.0
STOPPING = (signal.SIGINT, signal.SIGTERM)


def pause_file() -> Path:
    """The file whose existence pauses writing and training on this machine."""
    return cache_folder() / "PAUSE"


def wait_while_paused() -> float:
    """Returns when there is no PAUSE file, with the seconds spent waiting."""
    began_s = time.monotonic()
    while pause_file().exists():
        time.sleep(POLL_S)
    return time.monotonic() - began_s


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A block that is done whole: signals that would stop the program are handled when it has ended."""
    if threading.current_thread() is not threading.main_thread():  # no signal arrives elsewhere
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    before = {number: signal.signal(number, lambda *event: caught.append(event)) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for event in caught:
        signal.raise_signal(event[0])
