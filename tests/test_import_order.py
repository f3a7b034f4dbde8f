"""Imports point one way, and the parts that run in a browser need nothing but the standard library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "spd_lib"
ORDER = ("core", "target", "draft", "decode", "baselines", "evaluate", "train", "distributed", "show")
MAY_IMPORT = {package: set(ORDER[: place + 1]) for place, package in enumerate(ORDER)}
MAY_IMPORT["distributed"] = {"core", "target", "draft", "decode", "distributed"}
RUNS_MODELS = set(ORDER[1:-1])  # `show` imports these only inside the functions that run them
HEAVY = {"torch", "transformers", "accelerate", "numpy", "safetensors"}

sources = sorted(LIBRARY.rglob("*.py"))


def package_of(path: Path) -> str | None:
    """The part of the library that a file belongs to, ``None`` for the files at its top."""
    parts = path.relative_to(LIBRARY).parts
    return parts[0] if len(parts) > 1 else None


def imports(tree: ast.AST, package: tuple[str, ...], *, inside_functions: bool) -> set[str]:
    """Absolute names of the modules that a file of ``package`` imports; those under TYPE_CHECKING do not count."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*home, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        elif inside_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found |= imports(node, package, inside_functions=inside_functions)
    return found


def imported_by(path: Path, *, inside_functions: bool = True) -> set[str]:
    package = ("spd_lib", *path.relative_to(LIBRARY).parts[:-1])
    return imports(ast.parse(path.read_text(encoding="utf-8")), package, inside_functions=inside_functions)


def parts(modules: set[str]) -> set[str]:
    """The parts of the library among ``modules``."""
    return {name.split(".")[1] for name in modules if name.startswith("spd_lib.")} & set(ORDER)


def test_the_order_covers_the_library() -> None:
    """Every folder with modules has its place in the order."""
    assert {package_of(path) for path in sources} - {None} <= set(ORDER)


@pytest.mark.parametrize("path", sources, ids=lambda path: path.relative_to(LIBRARY).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    package = package_of(path)
    if package is not None:
        assert parts(imported_by(path)) <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", sorted((LIBRARY / "show").rglob("*.py")), ids=lambda path: path.name)
def test_show_imports_models_only_where_they_run(path: Path) -> None:
    top_level = imported_by(path, inside_functions=False)
    assert not parts(top_level) & RUNS_MODELS
    assert not {name.split(".")[0] for name in top_level} & {"torch", "transformers"}


@pytest.mark.parametrize("path", sorted((LIBRARY / "core").rglob("*.py")), ids=lambda path: path.name)
def test_core_needs_the_standard_library_only(path: Path) -> None:
    outside = {name.split(".")[0] for name in imported_by(path)} - {"spd_lib"}
    assert outside <= set(sys.stdlib_module_names)


def test_the_checker_sees_what_it_should() -> None:
    """Relative, absolute, inside functions, under TYPE_CHECKING: each kind of import, by hand."""
    code = """
import torch.nn
from ..core import trace
from . import plan
from .plan import even
if TYPE_CHECKING:
    from ..target import Pipeline
def run():
    from spd_lib.decode import engine
"""
    everywhere = imports(ast.parse(code), ("spd_lib", "draft"), inside_functions=True)
    assert parts(everywhere) == {"core", "draft", "decode"}
    assert {"torch.nn", "spd_lib.core.trace", "spd_lib.draft.plan.even"} <= everywhere
    assert parts(imports(ast.parse(code), ("spd_lib", "draft"), inside_functions=False)) == {"core", "draft"}


@pytest.mark.parametrize("statement", ["import spd_lib", "import spd_lib.core", "import spd_lib.core.perfetto"])
def test_imports_that_load_no_torch(statement: str) -> None:
    """In a fresh interpreter, nothing heavy is loaded, and the library's names are listed all the same."""
    report = f"{statement}, sys; print(sorted({HEAVY!r} & set(sys.modules)), 'Pipeline' in dir(spd_lib))"
    done = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_names_are_found_when_used() -> None:
    """Every name that the package promises exists, and another does not."""
    import spd_lib

    assert all(getattr(spd_lib, name) is not None for name in spd_lib.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        spd_lib.nonsense  # noqa: B018
