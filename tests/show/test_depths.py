"""The figures of what the drafter sees say what the staircase says, in every state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spd_lib.core import even
from spd_lib.core.staircase import row_kinds
from spd_lib.show import anchor_ruler, depth_strip, mask_explorer

ANCHORS = (0, 4, 8, 12, 16, 20, 24, 30)
CHROMIUM = Path("/usr/bin/chromium")


def test_the_strip_shows_the_staircase() -> None:
    words = {key: picture.words for key, picture in depth_strip(30, ANCHORS).pictures.items()}
    assert "t−3: 23 layers, anchors 0, 4, 8, 12, 16, 20; t−2: 16 layers" in words["SPD", "4", "4"]
    assert "t−2: 30 layers" in words["SPD", "4", "2"]
    assert words["SPD", "2", "2"] == words["SPD", "2", "8"], "a pipe of two stages holds two tokens"
    assert "for the 3 newest it has only its own states" in words["EAGLE-3", "4", "3"]
    assert "after its first stage, 8 layers" in words["PPSD", "4", "1"]


def test_the_ruler_names_what_is_lost_and_unused() -> None:
    words = {key[0]: picture.words for key, picture in anchor_ruler(30, ANCHORS).pictures.items()}
    assert words["4"].endswith("23 layers passed, anchor 20; 30 layers passed, anchor 30. "
                               "No depth stops at the anchors 4, 12, 24.")  # fmt: skip
    assert words["16"].count("layers passed") == 17


@pytest.mark.parametrize("choices", [("4", "3", "6"), ("4", "4", "7"), ("2", "4", "4"), ("4", "1", "6")])
def test_the_mask_is_the_function_that_training_uses(choices: tuple[str, str, str]) -> None:
    n, fill, newest = map(int, choices)
    html = mask_explorer(30, ANCHORS).pictures[choices].html
    kinds = row_kinds(even(30, n), ANCHORS, fill)
    marked = re.search(r"<tr class=spd-on>(.*?)</tr>", html).group(1)
    cells = [int(cell) for cell in re.findall(r'<td class="spd-[a-z-]+">(\d+)</td>', marked)]
    behind = [ANCHORS[kinds[d]] if d < len(kinds) else 30 for d in range(newest, -1, -1)]
    assert cells == behind
    assert html.count("token ") >= len(kinds)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("There is no Chromium in /usr/bin: the browser tests are left out.")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed.")
    file = tmp_path_factory.mktemp("frames") / "page.html"
    figures = (depth_strip(30, ANCHORS), anchor_ruler(30, ANCHORS), mask_explorer(30, ANCHORS))
    file.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Depths</title>{''.join(figure.html() for figure in figures)}",
        encoding="utf-8",
    )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 390, "height": 800})
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.goto(file.as_uri())
        yield opened
        assert errors == []
        browser.close()


def test_choosing_by_keyboard_shows_another_state(page: Any) -> None:
    strip, expected = page.locator(".spd-frames").first, depth_strip(30, ANCHORS).pictures
    assert strip.locator(".spd-words").text_content() == expected["SPD", "4", "3"].words
    strip.get_by_role("radio", name="SPD").focus()
    page.keyboard.press("ArrowRight")
    assert strip.locator(".spd-words").text_content() == expected["EAGLE-3", "4", "3"].words
    assert strip.locator(".spd-frame:visible").count() == 1
    assert "its own guess" in strip.locator(".spd-frame:visible").inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert strip.locator(".spd-words").text_content() == expected["EAGLE-3", "8", "3"].words


def test_the_figures_fit_a_phone(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
