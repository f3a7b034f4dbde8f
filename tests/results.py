"""What every committed result says about itself, and how it is saved."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

from spd_lib.evaluate import report
from spd_lib.evaluate.report import save as save

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "spd_lib"
DECIDING = ("core", "target", "draft", "decode", "baselines")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DECIDE_NOTHING = ("__init__.py", "load.py")  # names, and where the weights are; not what is computed with them


def _fingerprint(source: str) -> str:
    """Hash of a module's code; comments, docstrings and layout do not count."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            node.body[0] = ast.Pass()
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def sources() -> dict[str, str]:
    """Fingerprints of all modules that decide what is decoded: the code that a result is of."""
    files = sorted(path for package in DECIDING for path in (LIBRARY / package).rglob("*.py"))
    paths = [path for path in files if path.name not in DECIDE_NOTHING]
    texts = {path.relative_to(LIBRARY).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {name: _fingerprint(text) for name, text in texts.items()}


def provenance(command: str) -> dict[str, Any]:
    """Where a result on the CPU comes from, and which code it is of."""
    return report.provenance(command) | {"sources": sources()}
