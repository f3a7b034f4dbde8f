"""The directives `library-picture` and `library-table`: who imports whom in `spd_lib`, drawn from its source."""

import re
from html import escape
from itertools import groupby

import source_tree
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

WIDTH, LEFT, BOX = 470, 4, 350  # user units; arcs live to the right of the boxes
CHAR, LINE, GAP = 7.4, 24, 18
CODE = re.compile(r"`+([^`]+)`+")


class Row:
    """One package: its box, its modules in lines of chips, and the packages that it imports."""

    def __init__(self, package: str, modules: list[source_tree.Module], top: float) -> None:
        self.package, self.top = package, top
        self.lines: list[list[tuple[float, str]]] = [[]]
        x = LEFT + 14.0
        for name in [m.stem for m in modules if not m.is_package]:
            wide = len(name) * CHAR + 14
            if x + wide > LEFT + BOX - 8:
                self.lines.append([])
                x = LEFT + 14.0
            self.lines[-1].append((x, name))
            x += wide + 6
        self.height = 34 + LINE * len(self.lines)
        self.imports: dict[str, bool] = {}
        for module in modules:
            for target, late in source_tree.imports(module).items():
                self.imports[target] = self.imports.get(target, True) and late

    @property
    def middle(self) -> float:
        return self.top + self.height / 2

    def svg(self) -> str:
        parts = [f'<rect class="lib-box" x="{LEFT}" y="{self.top}" width="{BOX}" height="{self.height}" rx="6"/>']
        parts.append(f'<text class="lib-package" x="{LEFT + 14}" y="{self.top + 21}">{escape(self.package)}</text>')
        for number, line in enumerate(self.lines):
            y = self.top + 30 + LINE * number
            for x, name in line:
                wide = len(name) * CHAR + 14
                parts.append(f'<rect class="lib-chip" x="{x:.0f}" y="{y}" width="{wide:.0f}" height="20" rx="10"/>')
                parts.append(f'<text class="lib-module" x="{x + 7:.0f}" y="{y + 14}">{escape(name)}</text>')
        return "".join(parts)


def rows() -> list[Row]:
    found: list[Row] = []
    top = 10.0
    for package, group in groupby(source_tree.modules(), key=lambda m: m.package):
        members = list(group)
        if package and any(not m.is_package for m in members):
            found.append(Row(package, members, top))
            top += found[-1].height + GAP
    return found


def arcs(found: list[Row]) -> str:
    """Curves from each package to those it imports; broken where the import happens inside functions only."""
    place = {row.package: row for row in found}
    parts = []
    for rank, row in enumerate(found):
        targets = sorted((t for t in row.imports if t in place), key=lambda t: place[t].top)
        for index, target in enumerate(targets):
            goal = place[target]
            start = row.middle + (index - (len(targets) - 1) / 2) * 7
            end = goal.middle + (rank - found.index(goal)) * 5 - 8
            x = LEFT + BOX
            bend = x + 32 + 16 * abs(rank - found.index(goal))
            late = " lib-late" if row.imports[target] else ""
            curve = f"M{x},{start:.0f} C{bend},{start:.0f} {bend},{end:.0f} {x + 7},{end:.0f}"
            parts.append(
                f'<path class="lib-arc{late}" marker-end="url(#lib-head)" d="{curve}">'
                f"<title>{escape(row.package)} imports {escape(target)}</title></path>"
            )
    return "".join(parts)


def described(found: list[Row]) -> str:
    return "; ".join(f"{row.package} imports {', '.join(sorted(row.imports)) or 'no other package'}" for row in found)


def picture() -> str:
    found = rows()
    height = (found[-1].top + found[-1].height + 10) if found else 10
    head = (
        '<defs><marker id="lib-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="lib-head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
    )
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(described(found), quote=True)}">'
        f"{head}{''.join(row.svg() for row in found)}{arcs(found)}</svg>"
    )
    caption = (
        "Each box is a package and holds its modules. An arrow goes from a package to one that it imports; "
        "a broken arrow stands for an import inside functions, done only when they run."
    )
    return (
        '<figure class="spd-figure lib-picture">'
        f'<div class="lib-scroll" tabindex="0" role="region" aria-label="The library in one picture">{svg}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def table() -> str:
    """Every module with the first sentence of its docstring."""
    lines = []
    for module in source_tree.modules():
        first = CODE.sub(r"<code>\1</code>", escape(module.doc.split("\n\n")[0].replace("\n", " ")))
        if not module.is_package:
            name = module.name.removeprefix("spd_lib.").replace(".", ".<wbr>")
            lines.append(f"<tr><td><code>{name}</code></td><td>{first}</td></tr>")
    return (
        '<div class="lib-scroll" tabindex="0" role="region" aria-label="All modules"><table class="table">'
        f"<thead><tr><th>Module</th><th>What it holds</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


class LibraryPicture(Directive):
    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", picture(), format="html")]


class LibraryTable(Directive):
    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", table(), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("library-picture", LibraryPicture)
    app.add_directive("library-table", LibraryTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
