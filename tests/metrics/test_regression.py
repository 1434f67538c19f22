"""Errors of the mean, intervals and quantiles; and what every regression score refuses."""

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
    third = torch.arange(6) == 2
    negative = RegressionPredictive(predictive.loc, torch.where(third, -0.1, predictive.scale))
    broken = RegressionPredictive(torch.where(third, torch.nan, predictive.loc), predictive.scale)
    for argument, targets, match in (
        (predictive, y[:5], r"y has shape \(5,\), but the predictions have shape \(6,\)"),
        (predictive, y.expand(6, 6), r"y has shape \(6, 6\)"),
        (predictive, torch.where(third, torch.nan, y), r"^y .*\b1 .*NaN"),
        (negative, y, r"predictive must have noise scales .* got values from -0\.1"),
        (broken, y, "predictive has 1 NaN or infinite means out of 6"),
        (RegressionPredictive(torch.zeros(3, 0), torch.tensor(1.0)), [], "predictive is empty"),
        (make_classification()[0], y, "predictive must be a RegressionPredictive.* got a ClassificationPredictive"),
    ):
        with pytest.raises(InputError, match=match):
            score(argument, targets)


def test_bad_levels(make_regression):
    predictive, y = make_regression()
    for score, arguments, match in (
        (metrics.coverage, (predictive, y, 1.0), "level must be .* strictly between 0 and 1"),
        (metrics.width, (predictive, 0.0), "level must be .* strictly between 0 and 1"),
        (metrics.quantile_calibration_error, (predictive, y, [0.5, 1.0]), "levels must be .* from 0.5 to 1.0"),
        (metrics.quantile_calibration_error, (predictive, y, []), r"levels must be .* got shape \(0,\)"),
    ):
        with pytest.raises(InputError, match=match):
            score(*arguments)


def test_a_noise_without_variance_has_no_gaussian_form(make_regression, flat_noise):
    predictive, y = make_regression()
    wild = RegressionPredictive(predictive.loc, predictive.scale, None, type(flat_noise)(variance=math.inf))
    for score in (metrics.crps, metrics.gaussian_pll):
        with pytest.raises(InputError, match=r"variance of FlatNoise is infinite"):
            score(wild, y)
    assert metrics.pll(wild, y).isneginf()  # some targets lie outside of every draw's bounds
