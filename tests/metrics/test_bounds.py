"""The paper's bounds: constant uncertainty, the optimum of each point, and what lies between."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings, strategies as st
from scipy import optimize

from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import RegressionPredictive


def best_variance(error: np.ndarray) -> float:
    """SciPy's search for the same minimum, on the log scale."""
    result = optimize.minimize_scalar(
        lambda log_std: scoringrules.crps_normal(error, 0.0, math.exp(log_std)).mean(),
        bounds=(math.log(np.abs(error).max()) - 20, math.log(np.abs(error).max()) + 3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return math.exp(2 * result.x)


@pytest.mark.parametrize(
    "error",
    [
        np.random.default_rng(0).normal(size=500) * 3,
        np.random.default_rng(1).standard_t(2, size=500) * 1e-4,
        np.random.default_rng(2).normal(size=500) * 1e5,
        np.concatenate([np.full(60, 1e-3), np.full(40, 1.0)]),
        np.concatenate([np.zeros(50), np.arange(1, 51)]),
    ],
    ids=["normal", "heavy tails", "large", "two sizes", "half of them 0"],
)
def test_constant_variance_minimises_crps(error):
    mean = torch.linspace(-1, 1, len(error), dtype=torch.float64)
    y = torch.from_numpy(error) + mean
    variance = metrics.constant_variance(mean, y, floor=1e-30).item()
    error = (y - mean).numpy()
    assert variance == pytest.approx(best_variance(error), rel=1e-5)
    least = scoringrules.crps_normal(error, 0.0, math.sqrt(variance)).mean()
    for factor in (0.98, 1.02):
        assert scoringrules.crps_normal(error, 0.0, factor * math.sqrt(variance)).mean() > least


@settings(max_examples=30)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.floats(-12, 12))
def test_constant_variance_solves_its_equation_in_any_unit(errors, exponent):
    error = 10**exponent * torch.tensor(errors, dtype=torch.float64)
    floor = 1e-40
    variance = metrics.constant_variance(torch.zeros_like(error), error, floor=floor).item()
    share = torch.exp(-0.5 * error.square() / variance).mean().item()
    if variance > 1.000001 * floor:
        assert share == pytest.approx(math.sqrt(0.5), abs=1e-9)
    else:
        assert share > math.sqrt(0.5) - 1e-9


def test_constant_variance_of_no_error_is_the_floor():
    y = torch.ones(4)
    assert metrics.constant_variance(y, y).item() == pytest.approx(metrics.VARIANCE_FLOOR)
    assert metrics.constant_variance(y, y, floor=0.5).item() == 0.5
    mostly = torch.tensor([0.0] * 8 + [1.0] * 2)
    assert metrics.constant_variance(torch.zeros(10), mostly, floor=1e-6).item() == pytest.approx(1e-6)


def test_constant_variance_per_output():
    error = torch.randn(40, 2, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 10.0, 0.1])
    bound = metrics.constant_variance(torch.zeros_like(error), error, per_output=True)
    assert bound.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            alone = metrics.constant_variance(torch.zeros(40), error[:, i, j])
            torch.testing.assert_close(bound[i, j], alone, rtol=1e-6, atol=0)
    assert metrics.constant_variance(torch.zeros_like(error), error).shape == ()


def test_constant_uncertainty_keeps_the_mean(make_regression):
    predictive, y = make_regression(shape=(6, 2))
    constant = metrics.constant_uncertainty(predictive, 4.0)
    torch.testing.assert_close(constant.mean, predictive.mean)
    assert (constant.variance == 4).all()
    expected = scoringrules.crps_normal(y.numpy(), predictive.mean.numpy(), 2.0).mean()
    assert metrics.crps(constant, y).item() == pytest.approx(expected, rel=1e-12)
    bound = metrics.constant_uncertainty(predictive, torch.tensor([1.0, 9.0]))
    assert bound.std[3].tolist() == [1.0, 3.0]


def test_optimal_scores():
    error = torch.tensor([2.0, -0.5, 0.0], dtype=torch.float64)
    assert metrics.optimal_crps(error).tolist() == pytest.approx([2 * 0.594904, 0.5 * 0.594904, 0], rel=1e-5)
    best = metrics.optimal_pll(error, floor=0.01)
    normal = [-0.5 * math.log(2 * math.pi * v) - 0.5 * r for v, r in ((4, 1), (0.25, 1), (0.01, 0))]
    assert best.tolist() == pytest.approx(normal)
    assert metrics.optimal_pll(error).isfinite().all()


def test_normalised_scores_are_ratios_of_means(make_regression):
    predictive, y = make_regression(shape=(25,))
    variance = 3.0
    error = y - predictive.mean
    crps = [metrics.crps(p, y) for p in (predictive, metrics.constant_uncertainty(predictive, variance))]
    expected = 100 * (crps[0] - crps[1]) / (metrics.optimal_crps(error).mean() - crps[1])
    torch.testing.assert_close(metrics.normalised_crps(predictive, y, variance), expected)
    pll = [metrics.pll(p, y) for p in (predictive, metrics.constant_uncertainty(predictive, variance))]
    expected = 100 * (pll[0] - pll[1]) / (metrics.optimal_pll(error).mean() - pll[1])
    torch.testing.assert_close(metrics.normalised_pll(predictive, y, torch.tensor(variance)), expected)
    gaussian = metrics.normalised_pll(predictive, y, variance, form="gaussian")
    assert gaussian != metrics.normalised_pll(predictive, y, variance)


def test_the_ends_of_the_normalised_scale(make_gaussian):
    y = torch.tensor([1.0, -2.0, 0.3, 4.0], dtype=torch.float64)
    zero = torch.zeros_like(y)
    best_crps, best_pll = make_gaussian(zero, y.abs() / math.sqrt(math.log(2))), make_gaussian(zero, y.abs())
    assert metrics.normalised_crps(best_crps, y, 2.0).item() == pytest.approx(100)
    assert metrics.normalised_pll(best_pll, y, 2.0).item() == pytest.approx(100)
    constant = make_gaussian(zero, math.sqrt(2.0))
    assert metrics.normalised_crps(constant, y, 2.0).item() == pytest.approx(0, abs=1e-10)
    assert metrics.normalised_pll(constant, y, 2.0).item() == pytest.approx(0, abs=1e-10)
    assert metrics.normalised_crps(make_gaussian(zero, 30.0), y, 2.0) < 0


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(-100, 100))
def test_normalised_scores_know_no_units(seed, factor, shift):
    generator = torch.Generator().manual_seed(seed)
    loc, y = torch.randn(4, 9, generator=generator).double(), torch.randn(9, generator=generator).double()
    scale = 0.1 + torch.rand(4, 9, generator=generator).double()
    before = RegressionPredictive(loc, scale)
    after = RegressionPredictive(factor * loc + shift, factor * scale)
    first, second = {"constant_variance": 0.7}, {"constant_variance": 0.7 * factor**2}
    for score in (metrics.normalised_crps, metrics.normalised_pll):
        if score is metrics.normalised_pll:  # a floor is a variance, and so has units
            first, second = {**first, "floor": 1e-9}, {**second, "floor": 1e-9 * factor**2}
        expected = score(before, y, **first).item()
        assert score(after, factor * y + shift, **second).item() == pytest.approx(expected, rel=1e-7, abs=1e-7)
        assert score(before, y, form="gaussian", **first).item() <= 100 + 1e-9


def test_bad_arguments(make_regression, make_gaussian):
    predictive, y = make_regression(shape=(6, 2))
    equal = make_gaussian(torch.zeros(2), 1.0)
    for score, arguments, match in (
        (metrics.constant_uncertainty, (predictive, -1.0), "variance must be finite and not negative, got"),
        (metrics.constant_uncertainty, (predictive, [1, math.nan]), "variance must be finite and not negative, got"),
        (metrics.constant_uncertainty, (predictive, "4"), "variance must be .* array of numbers, got str"),
        (metrics.normalised_crps, (predictive, y, torch.ones(3)), r"variance has shape \(3,\), but .* \(6, 2\)"),
        (metrics.constant_variance, (torch.zeros(0), []), r"mean must hold at least one .*, got shape \(0,\)"),
        (metrics.constant_variance, (torch.zeros(3), [1.0, 2.0]), r"y has shape \(2,\)"),
        (metrics.constant_variance, (torch.zeros(2), [1.0, math.nan]), r"^y .*\b1 .*NaN"),
        (metrics.optimal_crps, ([math.nan, 1.0],), "error has 1 NaN"),
        (partial(metrics.optimal_pll, floor=0), ([1.0],), "floor must be a small positive variance .*, got 0"),
        (metrics.normalised_crps, (equal, [1.0, -1.0], 1 / math.log(2)), "already scores the optimum"),
    ):
        with pytest.raises(InputError, match=match):
            score(*arguments)


def test_half_precision_keeps_its_floor_and_the_targets_digits():
    assert metrics.constant_variance(torch.zeros(5, 1).half(), torch.zeros(5, 1)) == pytest.approx(1e-12)
    y = torch.tensor([2.0, 2.0001])
    expected = metrics.constant_variance(torch.full((2,), 2.0), y)
    torch.testing.assert_close(metrics.constant_variance(torch.full((2,), 2.0).half(), y), expected)


def test_a_constant_variance_in_any_container(make_regression):
    predictive, _ = make_regression(shape=(5, 2))
    expected = torch.tensor([2.0, 1.0], dtype=torch.float64).expand(5, 2)
    for variance in (np.array([1.0, 4.0])[::-1], [4.0, 1.0]):
        torch.testing.assert_close(metrics.constant_uncertainty(predictive, variance).std, expected)
