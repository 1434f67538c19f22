"""Errors sorted by uncertainty, against plain NumPy and SciPy."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.predictive import GaussianPredictive, LaplaceNoise, RegressionPredictive

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import UncertaintyErrorPlot
from bayesnorm.plots.uncertainty_error import running_mean

rng = np.random.default_rng(0)


def rows(count):
    std = rng.uniform(0.2, 2.0, count)
    return std * rng.standard_normal(count), std


def test_arrays_are_sorted_by_uncertainty_with_gaussian_bands():
    error, std = rows(80)
    plot = UncertaintyErrorPlot.from_arrays(error, std, 0.8)
    order = np.argsort(std)
    np.testing.assert_array_equal(plot.std, std[order])
    np.testing.assert_array_equal(plot.error, error[order])
    np.testing.assert_array_equal(plot.at, np.arange(80))
    for level in (0.5, 0.95):
        np.testing.assert_allclose(plot.bands[level], stats.norm.interval(level, scale=std[order])[1])
        assert plot.inside[level] == np.mean(np.abs(error) <= stats.norm.ppf((1 + level) / 2) * std)
    assert plot.rank_correlation == pytest.approx(stats.spearmanr(std, np.abs(error)).statistic)
    assert plot.constant_std == 0.8


def test_running_mean_is_that_of_all_rows():
    values = rng.uniform(size=30)
    for window in (1, 4, 5, 30):
        expected = [values[max(0, i - window // 2) : i - window // 2 + window].mean() for i in range(30)]
        np.testing.assert_allclose(running_mean(values, window), expected)
    error, std = rows(10_000)
    plot = UncertaintyErrorPlot.from_arrays(error, std)
    ordered = np.abs(error[np.argsort(std)])
    half = plot.window // 2
    assert plot.running[5000] == pytest.approx(ordered[5000 - half : 5000 - half + plot.window].mean())


@pytest.mark.parametrize("noise", [None, LaplaceNoise()])
def test_bands_of_a_predictive_are_its_own_intervals(noise):
    loc = torch.randn(7, 60, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scale = torch.linspace(0.3, 1.5, 60, dtype=torch.float64)[torch.randperm(60)][None, :, None]
    predictive = RegressionPredictive(loc, scale, noise=noise)
    y = predictive.sample(1, seed=1)[0]
    plot = UncertaintyErrorPlot.from_predictive(predictive, y)
    order = predictive.std.flatten().argsort()
    np.testing.assert_allclose(plot.std, predictive.std.flatten()[order])
    np.testing.assert_allclose(plot.error, (y - predictive.mean).flatten()[order])
    for level in (0.5, 0.95):
        edges = predictive.interval(level)
        half_width = (edges[1] - edges[0]).flatten()[order] / 2
        np.testing.assert_allclose(plot.bands[level], half_width, atol=1e-9)
        inside = ((y >= edges[0]) & (y <= edges[1])).double().mean()
        assert plot.inside[level] == pytest.approx(float(inside))


def test_a_gaussian_predictive_equals_its_arrays():
    error, std = rows(70)
    variance = torch.from_numpy(std).square()
    predictive = GaussianPredictive(torch.zeros(70, dtype=torch.float64), variance / 3, 2 * variance / 3)
    result = UncertaintyErrorPlot.from_predictive(predictive, error)
    expected = UncertaintyErrorPlot.from_arrays(error, std)
    np.testing.assert_allclose(result.std, expected.std)
    np.testing.assert_allclose(result.running, expected.running)
    np.testing.assert_allclose(result.bands[0.95], expected.bands[0.95], rtol=1e-6)
    assert result.inside == expected.inside


@pytest.mark.parametrize("count", [60, 10_000])
def test_points_are_thinned_but_not_the_running_mean(count):
    error, std = rows(count)
    plot = UncertaintyErrorPlot.from_arrays(error, std, 1.0)
    assert len(plot.running) == count
    ax = plot.draw()
    line = next(line for line in ax.get_lines() if line.get_label() == "running mean")
    places = (line.get_xdata() - 1).astype(int)
    np.testing.assert_array_equal(line.get_ydata(), plot.running[places])
    dots = sum(
        len(part.get_offsets()) for part in ax.collections if part.get_label() in ("absolute error", "off the scale")
    )
    assert dots == min(count, 800)
    assert len(places) <= 300
    assert (places[0], places[-1]) == (0, count - 1)


def test_everything_is_drawn_and_labelled():
    error, std = rows(60)
    plot = UncertaintyErrorPlot.from_arrays(error, std, 0.7, target="strength", unit="MPa")
    ax = plot.draw()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:3] == ["95 % interval", "50 % interval", "absolute error"]
    assert labels[-2:] == ["running mean", "constant baseline, 50 % and 95 %"]
    assert ax.get_ylabel() == "absolute error of strength (MPa)"
    assert ax.get_title() == plot.title
    heights = sorted(line.get_ydata()[0] for line in ax.get_lines() if line.get_linestyle() == "--")
    np.testing.assert_allclose(heights, [0.7 * stats.norm.ppf(0.75), 0.7 * stats.norm.ppf(0.975)])
    wide, narrow = (part.get_paths()[0].vertices[:, 1].max() for part in ax.collections[:2])
    np.testing.assert_allclose([wide, narrow], [stats.norm.ppf(0.975) * std.max(), stats.norm.ppf(0.75) * std.max()])


def test_a_huge_error_does_not_flatten_the_rest_and_is_still_shown():
    error, std = rows(500)
    error[7] = 1e4
    ax = UncertaintyErrorPlot.from_arrays(error, std).draw()
    top = ax.get_ylim()[1]
    assert top < 10
    (beyond,) = (part for part in ax.collections if part.get_label() == "off the scale")
    assert 0.9 * top < beyond.get_offsets()[:, 1].max() < top


def test_few_rows():
    for count in (1, 2, 3):
        plot = UncertaintyErrorPlot.from_arrays(np.zeros(count), np.zeros(count))
        assert plot.rank_correlation is None
        assert "rank correlation" not in plot.summary
        assert plot.draw().get_ylim() == (0, 1)


def test_bad_arguments():
    with pytest.raises(InputError, match=r"error and std must have .* got 2 and 3 numbers"):
        UncertaintyErrorPlot.from_arrays([1, 2], [1, 2, 3])
    with pytest.raises(InputError, match=r"std must not be negative, got -1"):
        UncertaintyErrorPlot.from_arrays([1, 2], [1, -1])
    with pytest.raises(InputError, match=r"error has 1 NaN"):
        UncertaintyErrorPlot.from_arrays([1, np.nan], [1, 1])
    with pytest.raises(InputError, match=r"error must be .* got shape \(0,\)"):
        UncertaintyErrorPlot.from_arrays([], [])
    with pytest.raises(BayesNormError, match=r"constant_std must be .* got 0.0"):
        UncertaintyErrorPlot.from_arrays([1, 2], [1, 2], 0.0)
    with pytest.raises(BayesNormError, match=r"window must be a whole number from 1 to 2, the number of points, got 3"):
        UncertaintyErrorPlot.from_arrays([1, 2], [1, 2], window=3)
    with pytest.raises(InputError, match=r"predictive must be .* got a int"):
        UncertaintyErrorPlot.from_predictive(3, [1.0])
