"""Fill the API pages with the signatures and docstrings of the library's public names, read from its source.

A page says which packages it wants: `<!-- api: core target -->`; `top` stands for the modules outside any package.
"""

import ast
import re
from collections.abc import Iterator

import source_tree
from sphinx.application import Sphinx

MARK = re.compile(r"<!-- api: ([a-z ]+) -->")
TOP = "top"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def markdown(doc: str) -> str:
    """A docstring as Markdown: roles become code, and nothing in it can become a heading or a tag."""
    doc = re.sub(r":[a-z:]+:`~?([^`]+)`", r"`\1`", doc)
    doc = re.sub(r"^(\S.*)\n[-=~]{3,}$", r"**\1**", doc, flags=re.M)
    doc = re.sub(r"^(\s*)#", r"\1\\#", doc, flags=re.M).replace("::\n", ":\n")
    pieces = re.split(r"(`+[^`]+`+)", doc)
    return "".join(p if p.startswith("`") else re.sub(r"<(?=[A-Za-z/!|])", "&lt;", p) for p in pieces)


def signature(function: Function, drop_self: bool = False) -> str:
    arguments = ast.parse(ast.unparse(function)).body[0].args  # type: ignore[attr-defined]  # a copy to cut
    if drop_self:
        (arguments.posonlyargs or arguments.args)[:1] = []
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def decorators(node: Function | ast.ClassDef) -> set[str]:
    return {ast.unparse(d).split("(")[0].rpartition(".")[2] for d in node.decorator_list}


def class_signature(node: ast.ClassDef) -> str:
    """The call that makes an instance: the fields of a dataclass, or the arguments of `__init__`."""
    for item in node.body:
        if isinstance(item, Function) and item.name == "__init__":
            return signature(item, drop_self=True).split(" -> ")[0]
    if "dataclass" not in decorators(node):
        return ""
    fields = [ast.unparse(item) for item in node.body if isinstance(item, ast.AnnAssign)]
    return f"({', '.join(f for f in fields if not f.startswith('_') and 'ClassVar' not in f)})"


def directive(kind: str, heading: str, body: str, depth: int, *options: str) -> str:
    fence = "`" * depth
    return "\n".join([f"{fence}{{py:{kind}}} {heading}", *options, "", body, fence, ""])


def described(node: Function | ast.ClassDef, depth: int, inside: bool = False) -> str:
    doc = markdown(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        members = [described(m, depth - 1, inside=True) for m in public(node.body) if ast.get_docstring(m)]
        return directive("class", node.name + class_signature(node), "\n\n".join([doc, *members]), depth)
    marks = decorators(node)
    if not inside:
        return directive("function", node.name + signature(node), doc, depth)
    if marks & {"property", "cached_property"}:
        types = [f":type: {ast.unparse(node.returns)}"] if node.returns else []
        return directive("property", node.name, doc, depth, *types)
    options = [f":{mark}:" for mark in marks & {"staticmethod", "classmethod"}]
    return directive("method", node.name + signature(node, "staticmethod" not in marks), doc, depth, *options)


def public(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    seen: set[str] = set()
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_") and node.name not in seen:
            seen.add(node.name)
            yield node


def reference(packages: set[str]) -> str:
    """The page of these packages below its introduction, as MyST Markdown."""
    parts, package = [], None
    for module in source_tree.modules():
        if (module.package or TOP) not in packages:
            continue
        names = list(public(module.tree.body))
        if module.package != package:
            package = module.package
            parts.append(f"## {f'spd_lib.{package}' if package else 'spd_lib'}\n")
        if module.is_package:
            parts.append(markdown(module.doc) + "\n")
        elif names:
            parts.append(f"### {module.name.removeprefix('spd_lib.')}\n\n{markdown(module.doc)}\n")
        if names:
            parts.append(f"```{{py:module}} {module.name}\n```\n")
        parts += [described(node, depth=6) for node in names]
    return "\n".join(parts) or "*The library has no public names yet.*"


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda mark: reference(set(mark[1].split())), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
