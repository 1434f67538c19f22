"""Errors of the mean, intervals and quantiles; and what every regression score refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import RegressionPredictive

SCORES = [
    metrics.rmse,
    metrics.mae,
    metrics.coverage,
    metrics.quantile_calibration_error,
    metrics.pll,
    metrics.gaussian_pll,
    metrics.crps,
    lambda predictive, y: metrics.crps(predictive, y, form="mixture"),
    lambda predictive, y: metrics.normalised_crps(predictive, y, 1.0),
    lambda predictive, y: metrics.normalised_pll(predictive, y, 1.0),
]


def test_errors_by_hand(make_gaussian):
    predictive = make_gaussian(torch.tensor([0.0, 0.0, 0.0, 0.0]), 1.0)
    y = [3.0, -4.0, 0.0, 0.0]
    assert metrics.rmse(predictive, y).item() == 2.5
    assert metrics.mae(predictive, y).item() == 1.75


def test_pit_is_the_cdf(make_regression):
    predictive, y = make_regression(shape=(30, 2))
    expected = stats.norm.cdf(y.numpy(), predictive.loc.numpy(), predictive.scale.numpy())
    expected = np.tensordot(predictive.weights.numpy(), expected, 1)
    np.testing.assert_allclose(metrics.pit(predictive, y), expected, rtol=1e-12)


def test_pit_of_samples_without_noise():
    steps = RegressionPredictive(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), torch.tensor(0.0))
    assert metrics.pit(steps, [-1.0, 1.0, 2.0]).tolist() == [0.0, 0.75, 1.0]


def test_coverage_counts_the_targets_inside_the_interval(make_regression):
    for level in (0.5, 0.9):
        predictive, y = make_regression(shape=(300,), seed=3)
        low, high = predictive.interval(level)
        expected = ((low <= y) & (y <= high)).double().mean()
        assert 0 < expected < 1
        assert metrics.coverage(predictive, y, level) == expected


def test_a_calibrated_gaussian_covers_as_promised(make_gaussian):
    number = 20_000
    y = torch.randn(number, generator=torch.Generator().manual_seed(0))
    predictive = make_gaussian(torch.zeros(number), 1.0)
    for level in (0.5, 0.9, 0.99):
        standard_error = math.sqrt(level * (1 - level) / number)
        assert abs(metrics.coverage(predictive, y, level).item() - level) < 4 * standard_error
    # E|share - p| averages sqrt(2 p (1 - p) / (pi N)) over p: 0.313 / sqrt(N); shares move together, so allow 4 of it.
    assert metrics.quantile_calibration_error(predictive, y) < 4 * 0.313 / math.sqrt(number)
    assert metrics.quantile_calibration_error(make_gaussian(torch.zeros(number), 2.0), y) > 0.05


def test_width_and_sharpness(make_gaussian, make_regression):
    std = torch.tensor([1.0, 3.0], dtype=torch.float64)
    predictive = make_gaussian(torch.zeros(2, dtype=torch.float64), std)
    assert metrics.width(predictive, 0.9).item() == pytest.approx(4 * stats.norm.ppf(0.95), rel=1e-7)
    assert metrics.sharpness(predictive).item() == pytest.approx(math.sqrt(5))
    assert metrics.width(make_gaussian(torch.ones(3), 0.0)).item() == 0
    mixture, _ = make_regression(shape=(5, 2))
    low, high = mixture.interval(0.8)
    assert metrics.width(mixture, 0.8).item() == pytest.approx((high - low).mean().item(), rel=1e-12)


def test_quantile_coverage_by_hand(make_gaussian):
    y = torch.tensor([-1.0, 0.0, 0.0, 1.0])
    predictive = make_gaussian(torch.zeros(4), 1.0)
    assert metrics.quantile_coverage(predictive, y, [0.1, 0.5, 0.9]).tolist() == [0.0, 0.75, 1.0]
    error = metrics.quantile_calibration_error(predictive, y, torch.tensor([0.1, 0.5, 0.9]))
    assert error.item() == pytest.approx((0.1 + 0.25 + 0.1) / 3)


def test_targets_in_any_container_and_with_an_axis_of_one(make_regression):
    for score in SCORES:
        predictive, y = make_regression(shape=(12, 1))
        value = score(predictive, y)
        assert value.shape == ()
        for same in (y[:, 0], y.numpy(), y[:, 0].tolist()):
            torch.testing.assert_close(score(predictive, same), value)


@pytest.mark.parametrize("score", SCORES)
def test_bad_targets_and_predictives(make_regression, make_classification, score):
    predictive, y = make_regression(shape=(6,))
    with pytest.raises(InputError, match=r"y has shape \(5,\), but the predictions have shape \(6,\)"):
        score(predictive, y[:5])
    with pytest.raises(InputError, match=r"y has shape \(6, 6\)"):
        score(predictive, y.expand(6, 6))
    with pytest.raises(InputError, match=r"^y .*\b1 .*NaN"):
        score(predictive, torch.where(torch.arange(6) == 2, torch.nan, y))
    negative = RegressionPredictive(predictive.loc, torch.where(torch.arange(6) == 2, -0.1, predictive.scale))
    with pytest.raises(InputError, match=r"predictive must have noise scales .* got values from -0\.1"):
        score(negative, y)
    broken = RegressionPredictive(torch.where(torch.arange(6) == 2, torch.nan, predictive.loc), predictive.scale)
    with pytest.raises(InputError, match=r"predictive has 1 NaN or infinite means out of 6"):
        score(broken, y)
    with pytest.raises(InputError, match=r"predictive is empty"):
        score(RegressionPredictive(torch.zeros(3, 0), torch.tensor(1.0)), [])
    with pytest.raises(InputError, match=r"predictive must be a RegressionPredictive.* got a ClassificationPredictive"):
        score(make_classification()[0], y)


def test_bad_levels(make_regression):
    predictive, y = make_regression()
    for level in (0.0, 1.0, 90, math.nan, "wide"):
        with pytest.raises(InputError, match=r"level must be .* strictly between 0 and 1"):
            metrics.coverage(predictive, y, level)
        with pytest.raises(InputError, match=r"level must be .* strictly between 0 and 1"):
            metrics.width(predictive, level)
    with pytest.raises(InputError, match=r"levels must be .* got values from 0.5 to 1.0"):
        metrics.quantile_calibration_error(predictive, y, [0.5, 1.0])
    with pytest.raises(InputError, match=r"levels must be .* got shape \(0,\)"):
        metrics.quantile_calibration_error(predictive, y, [])


def test_a_noise_without_variance_has_no_gaussian_form(make_regression, flat_noise):
    predictive, y = make_regression()
    wild = RegressionPredictive(predictive.loc, predictive.scale, None, type(flat_noise)(variance=math.inf))
    for score in (metrics.crps, metrics.gaussian_pll):
        with pytest.raises(InputError, match=r"variance of FlatNoise is infinite"):
            score(wild, y)
    assert metrics.pll(wild, y).isneginf()  # some targets lie outside of every draw's bounds
