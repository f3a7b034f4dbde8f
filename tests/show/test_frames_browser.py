"""The figures of what the drafter sees, in a browser: by keyboard, by mouse, on a phone, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spd_lib.show import anchor_ruler, depth_strip, mask_explorer

ANCHORS = (0, 4, 8, 12, 16, 20, 24, 30)
CHROMIUM = Path("/usr/bin/chromium")
STRIP, RULER, MASK = depth_strip(30, ANCHORS, 8.0), anchor_ruler(30, ANCHORS, 8.0), mask_explorer(30, ANCHORS, 8.0)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("There is no Chromium in /usr/bin: the browser tests are left out.")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed.")
    file = tmp_path_factory.mktemp("frames") / "page.html"
    file.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Depths</title>{''.join(figure.html() for figure in (STRIP, RULER, MASK))}",
        encoding="utf-8",
    )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(file.as_uri())
        yield page
        assert errors == []
        browser.close()


@pytest.fixture
def page(opened: Any) -> Any:
    opened.reload()
    return opened


def choose(figure: Any, **choices: str) -> None:
    for legend, value in choices.items():
        figure.get_by_role("group", name=legend.replace("_", " "), exact=True).get_by_role(
            "radio", name=value, exact=True
        ).check()


def test_choosing_by_keyboard_shows_another_state(page: Any) -> None:
    strip = page.locator(".spd-frames").first
    assert strip.locator(".spd-words").text_content() == STRIP.pictures["SPD", "4", "even", "4"].words
    strip.get_by_role("radio", name="SPD").focus()
    page.keyboard.press("ArrowRight")
    assert strip.locator(".spd-words").text_content() == STRIP.pictures["EAGLE-3", "4", "even", "4"].words
    assert strip.locator(".spd-frame:visible").count() == 1
    assert "guess 3" in strip.locator(".spd-frame:visible").inner_text()


def offered(figure: Any, legend: str) -> list[str]:
    """The choices of a control that can be chosen."""
    group = figure.get_by_role("group", name=legend, exact=True)
    return group.locator("input:enabled").evaluate_all("radios => radios.map(radio => radio.value)")


def test_only_what_exists_is_offered(page: Any) -> None:
    strip, steps = page.locator(".spd-frames").first, "in flight, or draft no."
    assert offered(strip, steps) == ["1", "2", "3", "4"], "the pipe that it opens with has four stages"
    choose(strip, n="8")
    strip.get_by_role("group", name=steps).get_by_role("radio", name="7").check()
    choose(strip, n="2")
    assert offered(strip, steps) == ["1", "2"]
    assert strip.locator(".spd-words").text_content() == STRIP.pictures["SPD", "2", "even", "2"].words
    choose(strip, Method="EAGLE-3")
    assert offered(strip, steps) == [str(draft) for draft in range(1, 9)]
    assert offered(strip, "n") == offered(strip, "plan") == [], "its draft knows no stages"
    choose(strip, Method="PPSD")
    assert (offered(strip, "n"), offered(strip, steps)) == (["2", "4", "8"], []), "it reads the newest token only"


def test_the_mask_offers_no_more_tokens_than_the_pipe_holds(page: Any) -> None:
    mask = page.locator(".spd-mask")
    assert offered(mask, "in flight") == ["1", "2", "3", "4"]
    choose(mask, n="2")
    assert offered(mask, "in flight") == ["1", "2"] and mask.locator(".spd-flying").text_content() == "2"
    choose(mask, in_flight="1")
    assert offered(mask, "plan") == ["even", "balanced"], "the same here, but not with a full pipe"


def test_the_arrow_keys_skip_what_is_not_offered(page: Any) -> None:
    strip, steps = page.locator(".spd-frames").first, "in flight, or draft no."
    strip.get_by_role("group", name=steps).get_by_role("radio", name="4").focus()
    page.keyboard.press("ArrowRight")
    assert strip.locator(".spd-words").text_content() == STRIP.pictures["SPD", "4", "even", "1"].words


def test_the_ruler_follows_plan_and_n(page: Any) -> None:
    ruler = page.locator(".spd-frames").nth(1)
    choose(ruler, n="16", plan="balanced")
    assert ruler.locator(".spd-words").text_content() == RULER.pictures["16", "balanced"].words


def test_the_numbers_of_the_stages_keep_apart_on_the_ruler(page: Any) -> None:
    ruler = page.locator(".spd-frames").nth(1)
    choose(ruler, n="16", plan="balanced")
    ends = ruler.locator(".spd-frame:visible .spd-track b").evaluate_all(
        """names => names.map(name => {
          const range = document.createRange();
          range.selectNodeContents(name);
          const { left, right } = range.getBoundingClientRect();
          return [left, right];
        })"""
    )
    assert len(ends) == 18, "embedding, stages and head"
    assert all(right < left for (_, right), (left, _) in zip(ends, ends[1:], strict=False))


def shown(mask: Any) -> tuple[list[str], str]:
    """The mask and the run as the page shows them, in the signs of the state."""
    rows = mask.locator(".spd-queries tr").evaluate_all("rows => rows.map(row => row.innerText.replace(/\\s/g, ''))")
    run = mask.locator(".spd-run tr").evaluate_all(
        "rows => rows.map(r => r.cells[2].textContent ? "
        "Number(r.cells[1].textContent).toString(36) + r.cells[2].textContent : '--').join('')"
    )
    return [row.removeprefix(str(query)) for query, row in enumerate(rows)], run


def test_the_mask_opens_with_its_first_state_and_shows_any_other(page: Any) -> None:
    mask = page.locator(".spd-mask")
    for choices, query in ((MASK.start, MASK.query), (("8", "balanced", "5", "6"), 10), (("2", "even", "2", "3"), 0)):
        choose(mask, **dict(zip(("n", "plan", "in_flight", "window"), choices, strict=True)))
        mask.get_by_role("radio", name=f"query {query}", exact=True).check()
        state = MASK.states[choices]
        assert shown(mask) == (list(state.mask), state.run[query])
        held = min(int(choices[0]), int(choices[2]), query + 1)
        assert mask.locator(".spd-flying").text_content() == str(held), "a pipe of n stages holds at most n tokens"
        assert mask.locator(".spd-on td[class]").count() == query + 1


def test_what_the_script_draws_is_what_python_drew(page: Any) -> None:
    parts = "[...document.querySelectorAll('.spd-mask section')].map(part => part.innerHTML)"
    before = page.evaluate(parts)
    page.locator(".spd-mask form").dispatch_event("change")
    assert page.evaluate(parts) == before


def test_a_query_is_chosen_by_a_click_on_its_row_or_by_arrow_keys(page: Any) -> None:
    mask = page.locator(".spd-mask")
    mask.locator(".spd-queries tr").nth(3).locator("td").nth(2).click()
    assert mask.locator(".spd-newest").text_content() == "3"
    page.evaluate("document.querySelector('.spd-mask [data-query]:checked').focus()")
    page.keyboard.press("ArrowDown")
    assert mask.locator(".spd-newest").text_content() == "4"
    assert shown(mask)[1] == MASK.states[MASK.start].run[4]


def test_the_figures_fit_a_phone(page: Any) -> None:
    choose(page.locator(".spd-mask"), n="8", in_flight="8")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
