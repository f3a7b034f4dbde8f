"""The README's Python runs as it stands, its links lead somewhere, its commands exist."""

import re
from pathlib import Path

import spd_lib

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_blocks_run_and_agree(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict = {}
    exec(blocks[0], names)
    assert capsys.readouterr().out.startswith("A pipe with four stages")
    assert isinstance(names["trace"], spd_lib.Trace)
    assert str(spd_lib.show.pipe_grid(names["trace"]))  # what a comment there promises
    through_transformers = eval(blocks[1].strip(), names)
    assert through_transformers.tolist() == names["output"].sequences.tolist()


def test_links_and_pictures_are_files():
    targets = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, flags=re.MULTILINE))
    assert named >= {"book", "test"}
    assert [name for name in named if not re.search(rf"^{name}:", makefile, flags=re.MULTILINE)] == []
