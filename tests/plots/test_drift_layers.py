"""The plot of where in a network new rows differ."""

import itertools

import pytest

from bayesnorm.shift import Drift, LayerDrift

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import DriftLayers, style


def comparison(p_values, overall):
    layers = tuple(LayerDrift(f"stage.{i}.norm", p, 0.1 * i, 1.0) for i, p in enumerate(p_values))
    return Drift(overall, 32, 2.0, layers)


def bars(ax, colour):
    from matplotlib.colors import to_rgba

    return [round(bar.get_x() + 0.4) for bar in ax.patches if bar.get_facecolor() == to_rgba(colour)]


def test_layers_beyond_chance_are_told_apart_and_the_first_is_marked():
    drift = comparison([0.3, 0.024, 1e-6, 0.5], 1e-5)
    ax = DriftLayers.from_drift(drift).draw()
    assert bars(ax, style.current().rival) == [2]
    assert bars(ax, style.current().model) == [0, 1, 3]
    (mark,) = [text for text in ax.texts if text.get_text() == "differs first"]
    assert mark.xy[0] == 2
    assert "first at stage.2.norm" in DriftLayers.from_drift(drift).summary
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [layer.name for layer in drift.layers]


def test_rows_like_those_of_training_have_no_layer_beyond_chance():
    plot = DriftLayers.from_drift(comparison([0.001, 0.5, 0.9], 0.2))
    ax = plot.draw()
    assert bars(ax, style.current().rival) == []
    assert "do not differ significantly from the training distribution (p = 0.2)" in plot.summary
    assert not [text for text in ax.texts if text.get_text() == "differs first"]


def test_fifty_layers_are_numbered():
    ax = DriftLayers.from_drift(comparison([0.5] * 20 + [1e-30] * 30, 1e-20)).draw()
    ax.get_figure().draw_without_rendering()
    assert [tick.get_text() for tick in ax.get_xticklabels()][:2] == ["1", "6"]
    assert len(bars(ax, style.current().rival)) == 30
    boxes = [tick.get_window_extent() for tick in ax.get_xticklabels()]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
