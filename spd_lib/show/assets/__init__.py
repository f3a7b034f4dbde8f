"""The stylesheets and the script that the figures carry with them."""

from functools import cache
from importlib.resources import files


@cache
def asset(name: str) -> str:
    """The text of the asset file ``name``."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8").strip()
