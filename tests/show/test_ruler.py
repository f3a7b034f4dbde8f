"""The layer ruler and the bars of shares: every layer once, every share of its own total."""

import re

import pytest

from spd_lib.core import balanced, even
from spd_lib.show import layer_ruler, share_bars


def test_every_layer_stands_once_on_the_ruler() -> None:
    html = layer_ruler(even(30, 4), 8.0).html()
    assert [int(layer) for layer in re.findall(r"<span>(\d+)</span>", html)] == list(range(30))
    assert html.count(">memory<") == 4
    assert "stage 3: layers 23–29" in html


def test_a_last_stage_without_layers_is_named() -> None:
    ruler = layer_ruler(balanced(30, 5, 8.0), 8.0)
    assert "stage 4: layers none" in ruler.html()
    assert "stage 4: none" in str(ruler)


def test_shares_are_parts_of_their_own_total() -> None:
    pytest.importorskip("plotly")
    figure = share_bars(["a", "b"], {"weights": [1, 3], "time": [2.0, 2.0]})
    assert figure.table is not None
    assert figure.table.rows == [["a", "25.0 %", "50.0 %"], ["b", "75.0 %", "50.0 %"]]


def test_share_bars_wants_two_series_of_the_right_length() -> None:
    with pytest.raises(ValueError, match="two series of 2"):
        share_bars(["a", "b"], {"weights": [1, 3]})
