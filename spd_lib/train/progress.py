"""Progress bars, shown by the first of several processes only."""

from __future__ import annotations

import os
from typing import Any

from tqdm.auto import tqdm


def progress(**options: Any) -> tqdm:
    """A bar of tqdm; the other processes that a launcher has started keep quiet."""
    return tqdm(disable=os.environ.get("RANK", "0") != "0", **options)
