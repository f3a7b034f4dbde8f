"""Draw the README's picture, the start of the running example, for light and for dark pages."""

from pathlib import Path

from spd_lib.show import pipe_svg, running_example

STATIC = Path(__file__).resolve().parent.parent / "book" / "_static"
CYCLES = 12


def pictures() -> dict[Path, str]:
    """File → SVG text."""
    trace = running_example()
    return {
        STATIC / "pipe-light.svg": pipe_svg(trace, dark=False, max_cycles=CYCLES),
        STATIC / "pipe-dark.svg": pipe_svg(trace, dark=True, max_cycles=CYCLES),
    }


if __name__ == "__main__":
    for path, svg in pictures().items():
        path.write_text(svg, encoding="utf-8")
