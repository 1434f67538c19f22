"""Q-Q plots: the numbers first, then what is drawn of them."""

from __future__ import annotations

import numpy as np
import pytest

import bayesnorm as bn

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
import torch
from torch import nn

from bayesnorm.theory import diagnose
from experiments.normality import normal_quantiles, unit_quantiles
from experiments.quantile_plot import QQPlot

X = torch.randn(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()


def test_curves_are_the_units_quantiles(diagnosis):
    plot = QQPlot.of_units(diagnosis, "1", "std", batch_size=40, units=[3, 0])
    found = diagnosis.at(40).layer("1").std
    labels = [f"unit {unit}, p = {float(found.p_value[unit]):.2g}" for unit in (3, 0)]
    assert list(plot.curves) == labels
    theoretical, empirical = normal_quantiles(100), unit_quantiles(found, 3)
    np.testing.assert_array_equal(plot.theoretical, theoretical)
    np.testing.assert_array_equal(plot.curves[labels[0]], empirical)
    assert plot.others.shape == (100, 10)
    assert plot.title == "1: batch standard deviations, M = 40"


def test_the_units_shown_are_not_hand_picked(diagnosis):
    plot = QQPlot.of_units(diagnosis, "1", batch_size=8)
    distance = diagnosis.at(8).layer("1").mean.distance
    closest, median, farthest = plot.curves
    assert closest.startswith(f"closest unit {int(distance.argmin())},")
    assert farthest.startswith(f"farthest unit {int(distance.argmax())},")
    assert median.startswith(f"median unit {int(distance.argsort()[6])},")


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("statistic", ["mean", "std"])
def test_a_curve_leaves_the_band_where_its_unit_is_rejected(diagnosis, statistic, fitted):
    outcomes = set()
    for size in (8, 40):
        for layer, units in (("1", 12), ("4", 6)):
            found = getattr(diagnosis.at(size).layer(layer), statistic)
            p_value = found.fitted_p_value if fitted else found.p_value
            for unit in range(units):
                plot = QQPlot.of_units(diagnosis, layer, statistic, batch_size=size, units=[unit], fitted=fitted)
                (curve,) = plot.curves.values()
                lower, upper = plot.band()
                outside = bool(((curve < lower - 1e-9) | (curve > upper + 1e-9)).any())
                assert outside == (float(p_value[unit]) < 0.05)
                outcomes.add(outside)
    assert outcomes == {True, False}, "else nothing was compared"


def test_one_unit_over_batch_sizes_and_epochs(diagnosis, epochs):
    over_sizes = QQPlot.over_batch_sizes(diagnosis, "4", 2, "std", fitted=True)
    assert list(over_sizes.curves) == ["M = 8", "M = 40"]
    expected = unit_quantiles(diagnosis.at(40).layer("4").std, 2, fitted=True)
    np.testing.assert_array_equal(over_sizes.curves["M = 40"], expected)
    over_epochs = QQPlot.over_epochs(epochs, "4", 2, batch_size=8)
    assert list(over_epochs.curves) == ["epoch 1", "epoch 10"]
    np.testing.assert_array_equal(over_epochs.curves["epoch 10"], unit_quantiles(diagnosis.at(8).layer("4").mean, 2))
    assert over_epochs.title == "4, unit 2: batch means, M = 8"
    assert over_sizes.critical < over_epochs.critical, "a fitted normal lies closer"


def test_everything_is_drawn_and_labelled(diagnosis):
    plot = QQPlot.of_units(diagnosis, "1", batch_size=8, units=[4])
    ax = plot.draw()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["not rejected at 5 %", "other units", *plot.curves]
    *others, diagonal, curve = ax.get_lines()
    assert len(others) == 11
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(curve.get_ydata(), plot.curves[labels[-1]])
    assert ax.get_title() == plot.title
    assert ax.get_xlabel() == "standard normal quantile"
    assert ax.get_ylabel() == "quantile of the batches, theoretical moments"


def test_bad_arguments(diagnosis):
    with pytest.raises(bn.BayesNormError, match=r"statistic must be .*, got 'var'"):
        QQPlot.of_units(diagnosis, "1", "var", batch_size=8)
    with pytest.raises(bn.BayesNormError, match=r"batch_size must be .*8, 40.*, got None"):
        QQPlot.of_units(diagnosis, "1")
    with pytest.raises(bn.BayesNormError, match=r"name.*'x'"):
        QQPlot.over_batch_sizes(diagnosis, "x", 0)
    with pytest.raises(bn.BayesNormError, match="found is empty"):
        QQPlot.over_epochs({}, "1", 0)


def test_a_layer_that_never_varies():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    model[0].weight.data.zero_()
    with pytest.raises(bn.BayesNormError, match=r"layer: no unit of '1' varies"):
        QQPlot.of_units(diagnose(model, X, 8, batches=20), "1")
