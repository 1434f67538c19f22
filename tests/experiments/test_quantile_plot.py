"""Q-Q plots: the numbers first, then what is drawn of them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")

from experiments.normality import normal_quantiles, unit_quantiles
from experiments.quantile_plot import QQPlot


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
