"""The grid's HTML: well formed, complete, escaped, self-contained."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from spd_lib.core.trace import Trace
from spd_lib.show.grid import pipe_grid
from spd_lib.show.life import Lives
from spd_lib.show.palette import FATE_STYLES
from spd_lib.show.picture import pipe_svg

from .traces import random_trace, with_texts, worked_example

HOSTILE = ["</script><b>", "<img src=x onerror=alert(1)>", "\"' &amp;", "]]>", "<!--", " ok", "\u202e", "\x00"]
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Checks that tags close in order; collects cells, chips and sentences."""

    VOID = {"br", "hr", "img", "meta", "input", "link"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[dict[str, str | None]]] = []
        self.lives: dict[str, str] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute appears twice in {attrs}"
        self.tags.append((tag, found))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append({"tag": tag, "classes": "", "text": "", **found})
        if tag == "b":
            self.rows[-1][-1]["classes"] += " " + found["class"]
        if tag == "li":
            self.lives[found["data-u"]] = ""
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "li":
            self.lives[list(self.lives)[-1]] += data
        elif {"td", "th"} & set(self.open):
            self.rows[-1][-1]["text"] += data


def check_lane(trace: Trace, cells: list[dict[str, str | None]], expected: list[tuple[int, ...]]) -> None:
    assert [cell.get("data-u", "") for cell in cells[1:]] == [" ".join(map(str, uids)) for uids in expected]
    for cell, uids in zip(cells[1:], expected, strict=True):
        for uid in uids:
            assert f"spd-{FATE_STYLES[trace.fate(uid)]}" in cell["classes"].split()
            assert trace.fate(uid) in cell["aria-label"]


@pytest.mark.parametrize("num_stages", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(6))
def test_every_token_has_its_cells(num_stages: int, seed: int) -> None:
    trace = random_trace(seed, num_stages)
    page = Page(pipe_grid(trace).html())
    _, draft, *stages, text = page.rows
    check_lane(trace, draft, [(), *(() if c.draft is None else (c.draft,) for c in trace.cycles)])
    for stage, cells in enumerate(stages):
        check_lane(trace, cells, [(), *(cycle.stages[stage] for cycle in trace.cycles)])
    check_lane(trace, text, [tuple(uids) for uids in Lives(trace).written.values()])
    assert page.lives == {str(uid): Lives(trace).sentence(uid) for uid in range(len(trace.tokens))}


def test_verdicts_and_cuts() -> None:
    trace = worked_example()
    rows = Page(pipe_grid(trace).html()).rows
    judged = {
        (cell["data-u"], column): cell["classes"].split()[-1]
        for row in rows
        for column, cell in enumerate(row[1:])
        if "spd-right" in cell["classes"] or "spd-wrong" in cell["classes"]
    }
    assert judged == {("1", 4): "spd-right", ("2", 5): "spd-wrong", ("7", 9): "spd-right"}
    judges = {
        (c["data-u"], column): c["data-judges"] for r in rows for column, c in enumerate(r[1:]) if "data-judges" in c
    }
    assert judges == {("0", 4): "1", ("1", 5): "2", ("6", 9): "7"}
    cuts = {column for row in rows for column, cell in enumerate(row[1:]) if cell.get("class") == "spd-cut"}
    assert cuts == {5}


def test_roles_and_labels() -> None:
    page = Page(pipe_grid(worked_example(), "A <small> pipe").html())
    cells = [cell for row in page.rows for cell in row if cell["tag"] == "td"]
    assert all(cell["role"] == "gridcell" and cell["aria-label"] for cell in cells)
    assert [cell["tabindex"] for cell in cells].count("0") == 1
    assert next(a for tag, a in page.tags if tag == "figure") == {}
    table = next(attributes for tag, attributes in page.tags if tag == "table")
    assert table["role"] == "grid" and table["aria-label"] == "A <small> pipe"
    assert {len(row) for row in page.rows} == {len(worked_example().cycles) + 2}


def test_hostile_texts_stay_texts() -> None:
    trace = with_texts(random_trace(2, 4), HOSTILE)
    plain = Page(pipe_grid(random_trace(2, 4)).html())
    page = Page(pipe_grid(trace, "</style></script><script>alert(1)</script>").html())
    kinds = [tag for tag, _ in page.tags if tag != "i"]
    assert kinds == [tag for tag, _ in plain.tags]
    assert any(cell["text"] == "</scrip…" for row in page.rows for cell in row)
    ElementTree.fromstring(pipe_svg(trace))


def test_no_request_leaves_the_page() -> None:
    html = pipe_grid(worked_example()).html()
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|src=", html)


def test_first_cycles() -> None:
    page = pipe_grid(worked_example(), max_cycles=4)
    assert {len(row) for row in Page(page.html()).rows} == {6}
    assert "The first 4 of 9 cycles; 5 more are not drawn." in page.html()
    with pytest.raises(ValueError, match="max_cycles"):
        pipe_grid(worked_example(), max_cycles=0)


def test_formats() -> None:
    grid = pipe_grid(worked_example(), "Four stages")
    bundle = grid._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"].startswith("Four stages\ncycle    0  1")
    assert bundle == pipe_grid(worked_example(), "Four stages")._repr_mimebundle_()
    assert len(bundle["text/html"]) < 30_000


@pytest.mark.parametrize("dark", [False, True])
def test_still_picture(dark: bool) -> None:
    trace = random_trace(3, 4)
    svg = pipe_svg(trace, dark)
    root = ElementTree.fromstring(svg)
    assert "var(" not in svg and "<script" not in svg and "<style" not in svg
    assert "A pipe, cycle by cycle" in root.findtext(f"{SVG}title")
    words = [text.text for text in root.iter(f"{SVG}text")]
    label = Lives(trace).label
    shown = sum(len(uids) for cycle in trace.cycles for uids in cycle.stages) + len(trace.committed)
    shown += sum(cycle.draft is not None for cycle in trace.cycles)
    cells = [text.text for text in root.iter(f"{SVG}text") if text.get("font-weight") == "600"]
    assert len([cell for cell in cells if cell != "·"]) == shown
    assert {label(uid) for uid in trace.committed} <= set(words)
    assert len(root.findall(f"{SVG}circle")) == len(trace.verdict_of)
