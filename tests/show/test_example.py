"""The running example is what the engine does today, and the README's picture is drawn from it."""

import runpy
from pathlib import Path

from spd_lib.show.example import record, running_example

ROOT = Path(__file__).resolve().parents[2]


def test_the_engine_still_does_what_was_recorded():
    recorded, now = running_example(), record()
    assert now == recorded
    assert now.token_ids == recorded.token_ids


def test_the_readme_shows_the_running_example():
    pictures = runpy.run_path(str(ROOT / "tools" / "readme_picture.py"))["pictures"]()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path, svg in pictures.items():
        assert path.read_text(encoding="utf-8") == svg, f"{path.name} is stale: run tools/readme_picture.py"
        assert str(path.relative_to(ROOT)) in readme
