"""Numbers beside axes, as people read them."""

import pytest

from bayesnorm.plots import style
from bayesnorm.plots.readable_numbers import on_axis


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0, 20_000, 40_000], ["0", "20,000", "40,000"]),
        ([-2.5, 0, 2.5], ["−2.5", "0.0", "2.5"]),
        ([0.25, 0.5], ["0.25", "0.50"]),
        ([2015, 2020], ["2015", "2020"]),
        ([1_234_567.0, 1_234_567.5], ["1,234,567.0", "1,234,567.5"]),
        ([0, 500_000, 1_000_000], ["0", "0.5 M", "1.0 M"]),
        ([-2e9, 0, 2e9], ["−2 bn", "0", "2 bn"]),
        ([100_000, 200_000], ["100,000", "200,000"]),
        ([1e13, 1.5e13], ["1e13", "1.5e13"]),
        ([1e-6, 2e-6], ["1e−6", "2e−6"]),
        ([-0.0, 0.1], ["0.0", "0.1"]),
    ],
)
def test_on_axis(values, texts):
    assert [on_axis(value, values[1] - values[0], max(map(abs, values))) for value in values] == texts


def test_axes_show_thousands_unless_somebody_says_otherwise():
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
    ax = style.axes(None)
    ax.plot([0, 50_000], [0, 1])
    style.percent_axis(ax.yaxis)
    style.axes(ax)
    ax.get_figure().canvas.draw()
    assert "20,000" in [label.get_text() for label in ax.get_xticklabels()]
    assert "100 %" in [label.get_text() for label in ax.get_yticklabels()]
