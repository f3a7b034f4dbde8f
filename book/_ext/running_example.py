"""The directive ``running-example``: the pipe grid of the recorded running example, for pages that run no code."""

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from spd_lib.show import pipe_grid, running_example


class RunningExample(Directive):
    """One line of content: the caption."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        grid = pipe_grid(running_example(), caption=" ".join(self.content))
        return [nodes.raw("", grid.html(), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("running-example", RunningExample)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
