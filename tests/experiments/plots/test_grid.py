"""Small multiples: every plot in its panel, one legend, no label twice."""

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import RetentionPlot
from experiments.plots import draw_grid

CURVES = {name: RetentionPlot.from_arrays([0.1, 0.2, 0.3], [0.5, 0.2, 0.9]) for name in "abcde"}


def test_panels_names_and_shared_words():
    figure = draw_grid(CURVES, columns=2, title="All of them")
    panels = figure.axes
    assert [ax.get_title() for ax in panels] == list("abcde")
    assert figure.get_suptitle() == "All of them"
    assert [bool(ax.get_ylabel()) for ax in panels] == [True, False, True, False, True]
    assert [bool(ax.get_xlabel()) for ax in panels] == [False, False, False, True, True], "the lowest of each column"
    assert all(ax.get_legend() is None for ax in panels)
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["dropped at random", "largest errors dropped first", "dropped by uncertainty"], "each once"
