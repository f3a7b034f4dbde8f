"""Charts of acceptance show the numbers of the result they are given, and nothing else."""

from __future__ import annotations

import pytest

from spd_lib.core import coin_flips, simulate
from spd_lib.core.metrics import acceptance_by_fill
from spd_lib.show import acceptance_bars, check_acceptance, fill_curves, history_curves, judged_shares, training_curve

pytest.importorskip("plotly")


def row(n: int, acceptance: float) -> dict:
    fills = [str(fill) for fill in range(1, n + 1)]
    return {
        "n": n,
        "acceptance": acceptance,
        "interval": [acceptance - 0.02, acceptance + 0.03],
        "raw": acceptance + 0.01,
        "agreement": {fill: acceptance - 0.01 * int(fill) for fill in fills},
        "by_fill": {fill: {"judged": 20 * int(fill), "acceptance": 0.5, "interval": [0.4, 0.7]} for fill in fills},
    }


RESULT = {"stages": [row(2, 0.6), row(4, 0.55)], "prompt_lookup": {"acceptance": 0.25}, "ceiling": 0.96}


def test_bars_and_their_table() -> None:
    figure = acceptance_bars(RESULT)
    assert list(figure.fig.data[0].y) == [0.6, 0.55]
    assert figure.table.rows[1] == [4, "0.550", "0.530 … 0.580", "0.560", "0.510"]
    assert "0.600 at n = 2, 0.550 at n = 4. Prompt lookup on the same tokens: 0.250. Ceiling: 0.960." in figure.alt


def test_acceptance_in_long_chats() -> None:
    far = {"acceptance": 0.2, "interval": [0.1, 0.25]}
    histories = [
        {"history": 128, "trained window": {"4": row(4, 0.6)}, "every row": {"4": row(4, 0.6)}},
        {"history": 2048, "trained window": {"4": row(4, 0.5)}, "every row": {"4": far}},
    ]
    figure = history_curves({"histories": histories}, num_stages=4)
    assert [list(trace.y) for trace in figure.fig.data] == [[0.6, 0.5], [0.6, 0.2]]
    assert list(figure.fig.data[1].error_y.arrayminus) == pytest.approx([0.02, 0.1])
    assert figure.table.rows[1] == ["2,048", "0.500 (0.480 … 0.530)", "0.200 (0.100 … 0.250)"]
    assert "every row: 0.600 after 128 tokens, 0.200 after 2,048" in figure.alt


def test_curves_by_fill() -> None:
    figure = fill_curves(RESULT, stages=(2, 4))
    assert [trace.name for trace in figure.fig.data] == [
        "agreement, n = 2", "agreement, n = 4", "acceptance, n = 4, 95 % interval"
    ]  # fmt: skip
    assert list(figure.fig.data[2].x) == [3, 4], "at fills 1 and 2 too few were judged"
    marks = figure.fig.data[2].error_y
    assert list(marks.array) == pytest.approx([0.2, 0.2]) and list(marks.arrayminus) == pytest.approx([0.1, 0.1])
    assert figure.fig.layout.yaxis.title.text == "share of drafts that are right", "of both, agreement and acceptance"
    assert figure.alt.endswith("at n = 4, with 95 % intervals, where at least 50 drafts were judged.")
    assert figure.table.rows[0] == ["1", "0.590", "0.540", "", "10.0 %"]
    assert figure.table.rows[3] == ["4", "", "0.510", "0.500 (0.400 … 0.700)", "40.0 %"]


def test_shares_of_judged_drafts_are_the_simulators() -> None:
    shares = [float(cell.removesuffix(" %")) / 100 for _, cell in judged_shares(0.6, 4).table.rows]
    trace = simulate(coin_flips(0.6, seed=1), 4, 20_000)
    fills = [
        sum(map(len, trace.cycles[trace.tokens[verdict.judged].drafted_in].stages))
        for cycle in trace.cycles
        for verdict in cycle.verdicts
    ]
    for fill, share in enumerate(shares, start=1):
        assert abs(fills.count(fill) / len(fills) - share) < 0.015


def test_the_training_curve() -> None:
    log = [{"tokens": 40 * s, "loss": 3.0 - s / 100, "n=4": {"acceptance": s / 200}} for s in (50, 100)]
    figure = training_curve(log)
    assert figure.table.rows == [["2,000", "2.500", "0.250"], ["4,000", "2.000", "0.500"]]
    assert "n = 4: 0.250 after 2,000 tokens, 0.500 after 4,000; the highest is 0.500, after 4,000" in figure.alt


def test_a_training_curve_that_falls_at_the_end() -> None:
    rates = (0.1, 0.4, 0.3)
    log = [{"tokens": 1000 * s, "loss": 1.0, "n=4": {"acceptance": rate}} for s, rate in enumerate(rates, start=1)]
    words = training_curve(log).alt
    assert "0.100 after 1,000 tokens, 0.300 after 3,000; the highest is 0.400, after 2,000" in words


def test_the_checker_knows_right_from_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    check_acceptance(acceptance_by_fill)
    assert capsys.readouterr().out.startswith("✓")
    check_acceptance(lambda agreement: sum(agreement) / len(agreement))
    assert "How often is a draft at each fill judged" in " ".join(capsys.readouterr().out.split())


def test_acceptance_by_fill_is_what_a_long_run_accepts() -> None:
    with pytest.raises(ValueError, match="probabilities by fill"):
        acceptance_by_fill([1.2])
    assert acceptance_by_fill([0.5]) == pytest.approx(0.5)
    assert acceptance_by_fill([0.7, 0.7, 0.7]) == pytest.approx(0.7)
    assert acceptance_by_fill([0.5, 1.0]) == 1.0
