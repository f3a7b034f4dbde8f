"""What the two generated pages read: the modules of `spd_lib`, from their source alone. Nothing is imported."""

import ast
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ORDER = ("core", "target", "draft", "decode", "baselines", "evaluate", "train", "distributed", "show", "")


@dataclass(frozen=True)
class Module:
    """One source file. `package` is its folder inside spd_lib, "" for the files at the top."""

    name: str  # dotted, "spd_lib.core.plan"
    package: str
    tree: ast.Module

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def is_package(self) -> bool:
        return self.name in ("spd_lib", f"spd_lib.{self.package}")


def modules() -> list[Module]:
    """All public modules, packages in the order in which they build on one another."""
    spec = find_spec("spd_lib")
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(spec.submodule_search_locations[0])
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(p.startswith("_") and p != "__init__" for p in parts):
            continue
        names = parts[:-1] if parts[-1] == "__init__" else parts
        package = parts[0] if len(parts) > 1 else ""
        found.append(Module(".".join(("spd_lib", *names)), package, ast.parse(path.read_text(encoding="utf-8"))))
    known = {name: rank for rank, name in enumerate(ORDER)}
    return sorted(found, key=lambda m: (known.get(m.package, len(ORDER)), m.package, not m.is_package, m.name))


def imports(module: Module) -> dict[str, bool]:
    """Packages of spd_lib that a module imports; true if only inside functions, when they run."""
    found: dict[str, bool] = {}

    def visit(node: ast.AST, late: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            for target in _targets(child, module):
                package = target.split(".")[1] if "." in target else ""
                if package != module.package and package in ORDER and package:
                    found[package] = found.get(package, True) and late
            visit(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    visit(module.tree, late=False)
    return found


def _targets(node: ast.AST, module: Module) -> list[str]:
    """Dotted names below spd_lib that one import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            folder = module.name.split(".")
            folder = folder[: len(folder) + module.is_package - node.level]
            base = ".".join([*folder, base] if base else folder)
        names = [base] if base.count(".") else [f"{base}.{alias.name}" for alias in node.names]
    else:
        return []
    return [name for name in names if name.split(".")[0] == "spd_lib"]
