"""The palette is legible, tells its styles apart without colour, and writes valid CSS and ANSI."""

import re

import pytest

from spd_lib.show.palette import DARK, HATCHES, LIGHT, PALETTE, css_text, style, terminal

NAMES = ["committed", "in-flight", "draft", "judged", "wasted", "rejected", "idle", "corrected"]
CELLS = ["committed", "corrected", "rejected", "wasted", "in-flight", "idle"]
# Linear RGB as it is seen without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
DEFICIENCIES = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(color: str) -> list[float]:
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(rgb: list[float]) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), rgb, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(linear(one)), luminance(linear(other))))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: list[float]) -> tuple[float, float, float]:
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(m * max(part, 0) for m, part in zip(row, rgb, strict=True)) for row in matrix]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in map(lambda a, b: a / b, xyz, white))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dark", [False, True])
def test_contrast(name: str, dark: bool) -> None:
    page, shade = (DARK if dark else LIGHT), style(name).shade(dark)
    assert contrast(shade.text, shade.fill) >= 4.5
    assert contrast(shade.text, shade.hatch) >= 4.5, "words also cross the lines of the hatch"
    assert contrast(shade.line, page.background) >= 4.5, "it is the colour of words on the page"
    assert contrast(style(name).chart, page.background) >= 3


@pytest.mark.parametrize("page", [LIGHT, DARK])
def test_page_contrast(page) -> None:
    assert contrast(page.text, page.background) >= 7
    assert contrast(page.muted, page.background) >= 4.5


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("dark", [False, True])
def test_colours_stay_apart_for_colour_blind_readers(deficiency: str, dark: bool) -> None:
    def seen(name: str) -> tuple[float, float, float]:
        rgb = linear(style(name).shade(dark).fill)
        return lab([sum(m * part for m, part in zip(row, rgb, strict=True)) for row in DEFICIENCIES[deficiency]])

    strong = ["committed", "corrected", "rejected"]
    for one in strong:
        for other in CELLS:
            if one != other:
                assert sum((a - b) ** 2 for a, b in zip(seen(one), seen(other), strict=True)) ** 0.5 >= 20, (one, other)


def test_never_colour_alone() -> None:
    looks = {(style(name).hatch, style(name).border) for name in CELLS}
    assert len(looks) == len(CELLS)
    assert len({each.glyph for each in PALETTE.values()}) == len(NAMES)
    assert len({each.ansi for each in PALETTE.values()}) == len(NAMES)
    assert all(each.hatch in HATCHES and each.sentence.endswith(".") for each in PALETTE.values())
    assert list(PALETTE) == NAMES


def test_css_defines_every_variable_it_uses() -> None:
    css = css_text()
    assert css.count("{") == css.count("}")
    light, dark = css.split("\n")[:2]
    assert light.startswith(":root{") and 'html[data-theme="dark"]' in dark
    assert "@media (prefers-color-scheme: dark)" in css
    for name in NAMES:
        assert f".spd-{name}{{" in css
        for part in ("fill", "hatch", "text", "line"):
            assert f"--spd-{name}-{part}:{getattr(style(name).light, part)};" in light
            assert f"--spd-{name}-{part}:{getattr(style(name).dark, part)};" in dark
    defined = set(re.findall(r"(--spd-[a-z-]+):", css))
    assert set(re.findall(r"var\((--spd-[a-z-]+)\)", css)) <= defined


def test_terminal() -> None:
    assert terminal("corrected", "cat") == "\x1b[1;33mcat\x1b[0m"
    assert terminal("flushed", "cat") == terminal("wasted", "cat"), "fates of a Trace are names too"
    with pytest.raises(ValueError, match="unknown style 'pink'; the styles are committed"):
        terminal("pink", "cat")
