"""The depth strip and the anchor ruler say what the staircase says, in every state."""

from __future__ import annotations

import re

import pytest

from spd_lib.core import even
from spd_lib.core.plan import make_plan
from spd_lib.core.staircase import anchors_passed
from spd_lib.show import anchor_ruler, depth_strip

ANCHORS = (0, 4, 8, 12, 16, 20, 24, 30)
HEAD = 8.0


def columns(html: str) -> list[tuple[str, str, int]]:
    """Of each column its name, what stands below it, and how many dots it has."""
    found = re.findall(r'<div><div class="spd-tall [a-z-]+">(.*?)</div><b>(.*?)</b><small>(.*?)</small>', html)
    return [(name, below, inside.count("<i ")) for inside, name, below in found]


def test_the_strip_shows_the_staircase() -> None:
    picture = depth_strip(30, ANCHORS, HEAD).pictures["SPD", "4", "even", "4"]
    assert columns(picture.html) == [
        ("t−5", "30 layers", 8), ("t−4", "30 layers", 8), ("t−3", "23 layers", 6), ("t−2", "16 layers", 5),
        ("t−1", "8 layers", 3), ("t", "embed", 1),
    ]  # fmt: skip
    assert "t−3: 23 layers, anchors up to 20; t−2: 16 layers" in picture.words


def test_a_pipe_of_two_stages_holds_two_tokens() -> None:
    pictures = depth_strip(30, ANCHORS, HEAD).pictures
    assert {step for method, n, _, step in pictures if (method, n) == ("SPD", "2")} == {"1", "2"}
    assert "t−1: 19 layers, anchors up to 16" in pictures["SPD", "2", "balanced", "2"].words


def test_a_token_whose_last_stage_is_the_head_alone_is_still_in_flight() -> None:
    html = depth_strip(30, ANCHORS, HEAD).pictures["SPD", "8", "balanced", "8"].html
    assert html.count("spd-tall spd-committed") == 2
    assert ("t−7", "30 layers", 8) in columns(html)


def test_a_stage_without_layers_has_its_number_too() -> None:
    for method in ("SPD", "PPSD"):
        picture = depth_strip(30, ANCHORS, HEAD).pictures[method, "8", "balanced", "8"]
        axis = picture.html[picture.html.rindex("spd-axis") :]
        assert re.findall(r">(\d+)</s>", axis) == [str(stage) for stage in range(8)]
        assert picture.words.endswith("Stage 7 holds the head alone.")


def test_numbers_beside_the_columns_keep_apart() -> None:
    for picture in depth_strip(30, ANCHORS, HEAD).pictures.values():
        for axis in picture.html.split("spd-axis")[1:]:
            heights = [float(height) for height in re.findall(r'<s style="bottom:([\d.]+)%', axis)]
            assert all(above - below >= 8 for below, above in zip(heights, heights[1:], strict=False))
            assert heights[-1] <= 100


@pytest.mark.parametrize("number", [1, 2, 5])
def test_an_eagle_draft_rests_on_the_guesses_before_it(number: int) -> None:
    """The k-th draft of a block stands on k − 1 guesses; before them comes the target's word, then what it has read."""
    picture = depth_strip(30, ANCHORS, HEAD).pictures["EAGLE-3", "4", "even", str(number)]
    shown = columns(picture.html)
    assert [below for _, below, _ in shown] == [
        "3 layers", "3 layers", "by target", *(f"guess {k}" for k in range(1, number))
    ]  # fmt: skip
    assert [dots for *_, dots in shown] == [3, 3, 1] + [1] * (number - 1)
    assert picture.html.count("own state") == number - 1
    expected = {1: "rests on no guess", 2: "rests on one guess of its own", 5: "rests on 4 guesses of its own"}[number]
    assert expected in picture.words


@pytest.mark.parametrize(("plan", "layers"), [("even", 8), ("balanced", 10)])
def test_ppsd_reads_the_newest_token_after_its_first_stage(plan: str, layers: int) -> None:
    picture = depth_strip(30, ANCHORS, HEAD).pictures["PPSD", "4", plan, "3"]
    assert columns(picture.html)[-1] == ("t", f"{layers} layers", 1)
    assert {(below, dots) for _, below, dots in columns(picture.html)[:-1]} == {("not read", 0)}
    assert f"after the first stage, {layers} layers" in picture.words


def rows(html: str) -> dict[str, list[int]]:
    """The rows of a table by their headings."""
    found = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', html)
    return {name: [int(cell) for cell in re.findall(r"<td[^>]*>(\d+)</td>", cells)] for name, cells in found}


@pytest.mark.parametrize("plan", ["even", "balanced"])
@pytest.mark.parametrize("n", ["2", "4", "8", "16"])
def test_the_ruler_has_the_kind_of_every_depth(n: str, plan: str) -> None:
    picture = anchor_ruler(30, ANCHORS, HEAD).pictures[n, plan]
    passed = make_plan(plan, 30, int(n), HEAD).boundaries
    kinds = [anchors_passed(ANCHORS, layers) for layers in passed]
    table = rows(picture.html)
    assert table["layers passed"] == list(passed)
    assert table["kind of row"] == kinds
    assert table["layers not read"] == [layers - ANCHORS[kind] for layers, kind in zip(passed, kinds, strict=True)]
    unused = ", ".join(str(kind) for kind in range(8) if kind not in kinds)
    assert ("Every kind occurs." if not unused else f"No row is of kind {unused}:") in picture.words


def test_anchors_and_unread_layers_stand_where_they_are() -> None:
    html = anchor_ruler(30, ANCHORS, HEAD).pictures["4", "even"].html
    marked = dict(re.findall(r"<span>(\d+)</span><u(?: class=spd-passed)?>(\d+)</u>", html))
    assert marked == {str(anchor - 1): str(anchor) for anchor in ANCHORS[1:]}, "anchor k stands behind layer k − 1"
    assert re.findall(r"spd-passed>(\d+)<", html) == ["4", "12", "24"]
    assert re.findall(r"spd-unread><span>(\d+)<", html) == ["20", "21", "22"]
    assert even(30, 4).boundaries[3] == 23
