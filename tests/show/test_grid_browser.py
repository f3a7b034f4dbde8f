"""The grid in a browser: pointing, the keyboard, the phone, the dark page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spd_lib.show.grid import HINT, pipe_grid
from spd_lib.show.life import Lives
from spd_lib.show.palette import style

from .traces import random_trace, with_texts, worked_example

CHROMIUM = Path("/usr/bin/chromium")
if not CHROMIUM.exists():
    pytest.skip("There is no Chromium in /usr/bin: the browser tests are left out.", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed.")

LIVES = Lives(worked_example())
# What is lit up in the first grid, as "row/column" counted from the draft lane and from the prefill.
LIT = """kind => [...document.querySelector(".spd-pipe").querySelectorAll("." + kind)]
    .map(cell => `${cell.parentElement.sectionRowIndex}/${cell.cellIndex - 1}`).sort()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A file with two grids; the test fails on any script error and on any request."""
    options = dict(getattr(request, "param", {}))
    theme = options.pop("theme", None)
    wide = with_texts(random_trace(0, 5, 40), [" long", " words", "</script><b>"])
    file = tmp_path / "page.html"
    file.write_text(
        f'<!doctype html><html lang="en"{f" data-theme={theme}" if theme else ""}><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Pipes</title><button>before</button>'
        f"{pipe_grid(worked_example()).html()}{pipe_grid(wide).html()}",
        encoding="utf-8",
    )
    opened = browser.new_page(**options)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda asked: asked.url.startswith("file:") or errors.append(asked.url))
    opened.goto(file.as_uri())
    yield opened
    assert errors == []
    opened.close()


def line(page: Any) -> str:
    return page.locator(".spd-line").first.text_content()


def cell(page: Any, row: int, column: int) -> Any:
    return page.locator(".spd-pipe").first.locator("tbody tr").nth(row).locator("td").nth(column)


def test_pointing_shows_the_life_and_the_judge(page: Any) -> None:
    assert line(page).startswith(HINT)
    cell(page, 2, 4).hover()  # c in stage 1, cycle 4
    assert line(page) == LIVES.sentence(2)
    assert page.evaluate(LIT, "spd-life") == ["0/2", "1/3", "2/4", "3/5"]
    assert page.evaluate(LIT, "spd-judge") == ["4/5"]
    dim = "row => getComputedStyle(row.querySelector('.spd-t')).opacity"
    assert float(cell(page, 1, 1).evaluate(dim)) < 0.5
    assert cell(page, 4, 5).evaluate(dim) == cell(page, 2, 4).evaluate(dim) == "1"
    cell(page, 2, 6).hover()
    assert line(page) == "Stage 1 is idle in cycle 6: the pipe fills again after the flush in cycle 5."
    assert page.evaluate(LIT, "spd-life") == []
    page.locator("button").hover()
    assert line(page).startswith(HINT)
    assert page.locator(".spd-on").count() == 0


def test_keyboard(page: Any) -> None:
    page.locator("button").focus()
    page.keyboard.press("Tab")  # into the grid: the empty corner of the draft lane
    assert line(page) == "The prefill reads the whole prompt at once."
    for key, uid in [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowDown", 1), ("ArrowLeft", 0), ("ArrowUp", 1)]:
        page.keyboard.press(key)
        assert line(page) == LIVES.sentence(uid)
    assert page.evaluate(LIT, "spd-life") == ["0/1", "1/2", "2/3", "3/4", "4/5", "5/4"]
    assert page.evaluate(LIT, "spd-judge") == ["4/4"]
    for key, expected in [("End", 10), ("Control+End", 7), ("ArrowDown", 7), ("ArrowRight", 7)]:
        page.keyboard.press(key)
        assert line(page) == LIVES.sentence(expected)
    page.keyboard.press("Home")
    assert line(page) == LIVES.sentence(0)
    page.keyboard.press("Control+Home")
    assert page.locator(".spd-pipe").first.locator('[tabindex="0"]').count() == 1
    cell(page, 1, 3).hover()
    assert line(page) == LIVES.sentence(2)
    page.locator("button").hover()
    assert line(page) == "The prefill reads the whole prompt at once.", "back to what has the focus"
    page.keyboard.press("Shift+Tab")
    assert line(page).startswith(HINT)


@pytest.mark.parametrize("page", [{"viewport": {"width": 700, "height": 844}}], indirect=True)
def test_focus_brings_the_whole_life_into_view(page: Any) -> None:
    pipe = page.locator(".spd-pipe").nth(1)
    pipe.locator("td[data-u]").first.focus()
    outside = """pipe => { const box = pipe.querySelector(".spd-scroll").getBoundingClientRect();
        const names = pipe.querySelector("th").offsetWidth;
        return [...pipe.querySelectorAll(".spd-life")].map(cell => cell.getBoundingClientRect())
            .filter(cell => cell.left < box.left + names - 1 || cell.right > box.right + 1).length }"""
    lives = 0
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        lives += pipe.locator(".spd-life").count() > 1
        assert pipe.evaluate(outside) == 0
    assert lives > 5 and pipe.locator(".spd-scroll").evaluate("box => box.scrollLeft") > 300
    page.keyboard.press("Escape")
    assert pipe.locator(".spd-life").count() == 0


def test_grids_do_not_disturb_each_other(page: Any) -> None:
    second = page.locator(".spd-pipe").nth(1)
    second.locator("td[data-u]").nth(3).hover()
    assert "</script><b>" not in line(page) and line(page).startswith(HINT)
    assert not second.locator(".spd-line").text_content().startswith(HINT)
    assert page.evaluate(LIT, "spd-life") == []


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_phone(page: Any) -> None:
    widths = "() => [document.documentElement.scrollWidth, innerWidth]"
    assert page.evaluate(widths) == [390, 390]
    box = page.locator(".spd-scroll").nth(1)
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.locator("td[data-u]").first.focus()
    page.keyboard.press("End")
    assert box.evaluate("box => box.scrollLeft") > 300
    heads = "box => box.querySelector('tbody th').getBoundingClientRect().left - box.getBoundingClientRect().left"
    assert abs(box.evaluate(heads)) < 1, "the stage names stay in sight"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    inside = "cell => cell.getBoundingClientRect().left - cell.parentElement.cells[0].getBoundingClientRect().right"
    assert page.locator("td:focus").evaluate(inside) >= -1, "the focused cell is not under the stage names"
    assert page.evaluate(widths) == [390, 390]


DARK, LIGHT = style("committed").dark.fill, style("committed").light.fill
THEMES = [
    ({"theme": "dark"}, DARK),
    ({"theme": "light", "color_scheme": "dark"}, LIGHT),
    ({"color_scheme": "dark"}, DARK),
    ({"color_scheme": "light"}, LIGHT),
]


@pytest.mark.parametrize(("page", "fill"), THEMES, indirect=["page"])
def test_theme(page: Any, fill: str) -> None:
    color = page.locator("b.spd-committed").first.evaluate("chip => getComputedStyle(chip).backgroundColor")
    assert color == f"rgb({int(fill[1:3], 16)}, {int(fill[3:5], 16)}, {int(fill[5:], 16)})"
