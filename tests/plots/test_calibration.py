"""Coverage of intervals and the probability integral transform, against SciPy's binomial and plain counting."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.metrics import coverage
from bayesnorm.predictive import RegressionPredictive

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import CalibrationPlot, CoveragePlot, binomial_band

PREDICTIVE = RegressionPredictive(
    torch.randn(5, 200, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    torch.linspace(0.2, 2.0, 200, dtype=torch.float64)[None, :, None],
)
Y = PREDICTIVE.sample(1, seed=2)[0] * 1.1


def inside(level):
    lower, upper = PREDICTIVE.interval(level)
    return (lower <= Y) & (upper >= Y)


def test_bands_of_several_counts_and_probabilities_at_once():
    counts, probabilities = np.array([7, 20, 7]), np.array([0.2, 0.5, 1.0])
    lower, upper = binomial_band(counts, probabilities)
    for k, (count, probability) in enumerate(zip(counts.tolist(), probabilities.tolist(), strict=True)):
        chance = [math.comb(count, n) * probability**n * (1 - probability) ** (count - n) for n in range(count + 1)]
        reached = np.cumsum(chance)
        assert lower[k] == np.argmax(reached >= 0.025) / count
        assert upper[k] == np.argmax(reached >= 0.975) / count


def test_chance_where_nothing_is_left_to_it():
    assert binomial_band(10, 0.0) == (0, 0)
    assert binomial_band(10, 1.0) == (1, 1)
    with pytest.raises(BayesNormError, match=r"count must be at least 1, got 0"):
        binomial_band(0, 0.5)


def test_observed_is_the_coverage_of_every_interval():
    plot = CalibrationPlot.from_predictive(PREDICTIVE, Y, levels=(0.9, 0.1, 0.5))
    np.testing.assert_array_equal(plot.level, (0.1, 0.5, 0.9))
    for level, observed, lower, upper in zip(plot.level, plot.observed, plot.lower, plot.upper, strict=True):
        assert observed == pytest.approx(float(inside(level).double().mean()))
        assert observed == pytest.approx(float(coverage(PREDICTIVE, Y, level)))
        assert (lower, upper) == pytest.approx(np.array(stats.binom.interval(0.95, 200, level)) / 200)
    assert plot.mean_gap == pytest.approx(np.abs(plot.observed - plot.level).mean())
    assert plot.count == 200


def test_chance_bands_hold_calibrated_predictions_as_often_as_they_say():
    uniform = np.random.default_rng(0).uniform(size=(400, 100))
    held = []
    for pit in uniform:
        plot = CalibrationPlot.from_pit(pit, levels=(0.3, 0.8))
        held.append((plot.observed >= plot.lower) & (plot.observed <= plot.upper))
    expected = [
        np.diff(stats.binom.cdf([lo - 1, hi], 100, p))[0]
        for p in (0.3, 0.8)
        for lo, hi in [stats.binom.interval(0.95, 100, p)]
    ]
    error = np.sqrt(np.array(expected) * (1 - np.array(expected)) / 400)
    assert (np.abs(np.mean(held, axis=0) - expected) < 4 * error).all()


def test_calibration_is_drawn_from_corner_to_corner():
    plot = CalibrationPlot.from_predictive(PREDICTIVE, Y)
    ax = plot.draw()
    line = next(line for line in ax.get_lines() if line.get_label() == "observed")
    np.testing.assert_array_equal(line.get_xydata()[1:-1].T, (plot.level, plot.observed))
    np.testing.assert_array_equal(line.get_xydata()[[0, -1]], [[0, 0], [1, 1]])
    assert ax.get_title() == plot.title


def test_coverage_by_deciles_of_uncertainty():
    plot = CoveragePlot.from_predictive(PREDICTIVE, Y, level=0.8, unit="m")
    order = PREDICTIVE.std.flatten().argsort().numpy()
    held = inside(0.8).flatten().numpy()
    groups = np.array_split(order, 10)
    np.testing.assert_array_equal(plot.count, [20] * 10)
    np.testing.assert_allclose(plot.coverage, [held[group].mean() for group in groups])
    np.testing.assert_allclose(plot.std, [np.median(PREDICTIVE.std.flatten().numpy()[group]) for group in groups])
    bounds = np.array(stats.binom.interval(0.95, 20, 0.8)) / 20
    np.testing.assert_allclose(np.stack([plot.lower, plot.upper], 1), np.tile(bounds, (10, 1)))
    assert plot.overall == pytest.approx(held.mean())
    ax = plot.draw()
    assert ax.get_xlabel().endswith("(m)")
    shown = np.concatenate([line.get_xydata() for line in ax.get_lines() if line.get_marker() in ("o", "D")])
    np.testing.assert_allclose(shown[np.argsort(shown[:, 0])][:, 1], plot.coverage)


def test_equal_uncertainty_stays_in_one_group():
    plot = CoveragePlot.from_arrays([1.0] * 30 + [2.0] * 70, [True] * 100, level=0.9)
    np.testing.assert_array_equal(plot.count, [30, 70])
    assert len(CoveragePlot.from_arrays([1.0] * 50, [True] * 50, level=0.9).count) == 1
    assert len(CoveragePlot.from_arrays(np.arange(62), [True] * 62, level=0.9).count) == 3


def test_few_rows():
    for count in (1, 2):
        for plot in (
            CalibrationPlot.from_pit([0.4] * count),
            CoveragePlot.from_arrays(np.arange(count), [False] * count, level=0.9),
        ):
            ax = plot.draw()
            if count == 1:
                ax.get_figure().draw_without_rendering()


def test_bad_arguments():
    with pytest.raises(InputError, match=r"transform must be .* got values from -0.1 to 0.5"):
        CalibrationPlot.from_pit([-0.1, 0.5])
    with pytest.raises(InputError, match=r"transform has 1 NaN"):
        CalibrationPlot.from_pit([np.nan, 0.5])
    with pytest.raises(BayesNormError, match=r"levels must be .* got values from 0.5 to 1.0"):
        CalibrationPlot.from_pit([0.5], levels=(0.5, 1.0))
    with pytest.raises(BayesNormError, match=r"groups must be .* got 0"):
        CoveragePlot.from_predictive(PREDICTIVE, Y, groups=0)
    with pytest.raises(InputError, match=r"level must be .* got 2"):
        CoveragePlot.from_predictive(PREDICTIVE, Y, level=2)
    with pytest.raises(InputError, match=r"inside must be True or False .* got numbers other than 0 and 1"):
        CoveragePlot.from_arrays([1, 2], [0.5, 1], level=0.9)
    with pytest.raises(InputError, match=r"std and inside must have .* got 2 and 1 values"):
        CoveragePlot.from_arrays([1, 2], [True], level=0.9)


def test_a_transform_with_derivatives():
    transform = torch.linspace(0.05, 0.95, 10, requires_grad=True)
    assert CalibrationPlot.from_pit(transform).count == 10
