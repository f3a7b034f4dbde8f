"""Charts carry their numbers and words; listings show the very source; nothing heavy loads before it is needed."""

import json
import re
import subprocess
import sys

import pytest

import spd_lib.show
from spd_lib.core import balanced, even, expected_speedup
from spd_lib.core.plan import Plan
from spd_lib.show.listing import source

pytest.importorskip("plotly", reason="Plotly is not installed: the charts cannot be drawn.")

from spd_lib.show.figures import BookFigure, distribution_bars, plan_bar, speedup_curve  # noqa: E402


def spec(figure: BookFigure) -> dict:
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure.html(), re.S)[1])


def test_plan_bar() -> None:
    plans = [even(30, 4), balanced(30, 4, 8), balanced(30, 8, 8)]
    figure = plan_bar(plans, head_cost=8)
    bars = spec(figure)["data"]
    names = bars[0]["y"]
    assert names == [
        "even, n = 4<br>n_eff = 2.53",
        "balanced, n = 4<br>n_eff = 3.80",
        "balanced, n = 8<br>n_eff = 4.75",
    ]
    for name, plan in zip(names, plans, strict=True):
        pieces = [bar["x"][bar["y"].index(name)] for bar in bars if name in bar["y"]]
        assert pieces == [*plan.counts, 8]
    marked = {
        (place, bar["y"][i]) for place, bar in enumerate(bars) for i, text in enumerate(bar["text"]) if "◂" in text
    }
    assert marked == {
        (3, names[0]),
        (8, names[0]),
        (0, names[1]),
        (3, names[1]),
        (8, names[1]),
        (7, names[2]),
        (8, names[2]),
    }
    assert "even with n = 4: layers 8 8 7 7, n_eff = 2.53" in figure.alt


def test_speedup_curve() -> None:
    figure = speedup_curve((0.6, 1.0), max_stages=8)
    first, second = spec(figure)["data"]
    assert first["x"] == list(range(1, 9))
    assert first["y"] == [round(expected_speedup(0.6, n), 3) for n in range(1, 9)]
    assert first["text"][-1] == "p = 0.6, at most 2.5" and second["text"][-1] == "p = 1"
    assert figure.table.rows == [["0.6", "1.00", "1.43", "1.82", "2.11"], ["1", "1.00", "2.00", "4.00", "8.00"]]


def test_distribution_bars() -> None:
    figure = distribution_bars([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1, 0, 0], [" cat", "</script>", "fox"])
    bars = spec(figure)["data"]
    heights = [[base + y for base, y in zip(bar["base"], bar["y"], strict=True)] for bar in bars[:4]]
    assert heights[1] == pytest.approx([0.5, 0.3, 0.2]) and heights[3] == pytest.approx([0.2, 0.3, 0.5])
    assert "They share 0.700" in figure.alt
    assert figure.html().count("</script>") == 1
    with pytest.raises(ValueError, match="lengths differ"):
        distribution_bars([1.0], [0.5, 0.5], [1.0])


def test_formats() -> None:
    figure = speedup_curve((0.5,), max_stages=4)
    bundle = figure._repr_mimebundle_()
    assert bundle["text/plain"] == str(figure) == figure.alt
    assert bundle["application/vnd.plotly.v1+json"] == spec(figure)
    assert bundle["text/html"].startswith(
        '<figure class="bk-plot"><div class="bk-plot-target" style="min-height:400px"></div>'
    )
    assert f"<figcaption>{figure.alt}</figcaption><details><summary>The numbers</summary><table>" in bundle["text/html"]
    assert "<details>" not in BookFigure(figure.fig, "No numbers.").html()


@pytest.mark.parametrize("thing", [even, Plan, Plan.cycle_cost])
def test_listing(thing) -> None:
    listing = source(thing)
    assert listing.name == f"spd_lib.core.plan.{thing.__qualname__}"
    assert listing.code.splitlines()[0] in (
        f"def {thing.__name__}(num_layers: int, num_stages: int) -> Plan:",
        "@dataclass(frozen=True)",
        "def cycle_cost(self, head_cost: float) -> float:",
    )
    bundle = listing._repr_mimebundle_()
    assert bundle["text/plain"] == f"# {listing.name}\n{listing.code}"
    plain = re.sub(r"<[^>]+>", "", bundle["text/html"].split("<code>")[1].split("</code>")[0])
    unescaped = (
        plain.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", '"')
        .replace("&#39;", "'")
        .replace("&amp;", "&")
    )
    assert unescaped == listing.code


def test_listing_without_pygments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygments", None)
    assert "<code>def even(num_layers: int, num_stages: int) -&gt; Plan:" in source(even).html()


def test_nothing_heavy_is_loaded() -> None:
    code = (
        "import sys, spd_lib.show as show; show.pipe_grid; show.plan_bar; show.check_plan; show.source; show.terminal;"
        "print(sorted({'torch', 'plotly', 'pygments', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_exports() -> None:
    for name in spd_lib.show.__all__:
        assert callable(getattr(spd_lib.show, name)), f"{name} is hidden by the module of the same name"
    assert dir(spd_lib.show) == spd_lib.show.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = spd_lib.show.nothing
