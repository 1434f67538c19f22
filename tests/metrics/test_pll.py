"""Log likelihoods against SciPy and the paper's formula, and their floors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import special, stats

from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import RegressionPredictive


def test_mixture_equals_the_papers_formula(make_regression):
    predictive, y = make_regression(samples=9, shape=(20,))
    tau, f = 4.0, predictive.loc.numpy()
    expected = special.logsumexp(-tau / 2 * (y.numpy() - f) ** 2, axis=0)
    expected = expected - math.log(9) - math.log(2 * math.pi) / 2 + math.log(tau) / 2
    paper = RegressionPredictive(predictive.loc, torch.tensor(tau**-0.5, dtype=torch.float64))
    np.testing.assert_allclose(metrics.pll_points(paper, y), expected, rtol=1e-12)
    assert metrics.pll(paper, y).item() == pytest.approx(expected.mean(), rel=1e-12)


def test_gaussian_form_has_the_matched_moments(make_regression):
    predictive, y = make_regression(shape=(15,))
    expected = stats.norm.logpdf(y.numpy(), predictive.mean.numpy(), predictive.std.numpy()).mean()
    assert metrics.gaussian_pll(predictive, y).item() == pytest.approx(expected, rel=1e-12)
    assert metrics.gaussian_pll(predictive, y) != metrics.pll(predictive, y)


def test_other_noise_is_scored_by_its_own_density(make_gaussian, flat_noise):
    predictive = RegressionPredictive(torch.zeros(1, 2), torch.tensor(2.0), None, flat_noise)
    assert metrics.pll(predictive, [0.5, -1.0]).item() == pytest.approx(math.log(1 / 4))


def test_zero_variance_is_floored(make_gaussian):
    for form in ("gaussian", "mixture"):
        y = torch.tensor([1.0, 2.0], dtype=torch.float64)
        certain = make_gaussian(y, 0.0)
        floor = 0.04
        assert metrics.pll(certain, y, form=form, floor=floor).item() == pytest.approx(
            -0.5 * math.log(2 * math.pi * floor)
        )
        assert metrics.pll(certain, y, form=form).item() == pytest.approx(-0.5 * math.log(2 * math.pi * 1e-12))
        wrong = metrics.pll(certain, y + 0.1, form=form, floor=floor).item()
        assert wrong == pytest.approx(stats.norm.logpdf(0.1, 0, 0.2))


@settings(max_examples=30)
@given(st.floats(-30, 30), st.floats(1e-3, 30), st.floats(1e-2, 1e2), st.floats(-30, 30))
def test_shift_changes_nothing_scale_subtracts_its_log_and_nothing_beats_the_optimum(y, std, factor, shift):
    zero, target = torch.zeros(2, 1, dtype=torch.float64), torch.tensor([y], dtype=torch.float64)
    stds = torch.tensor(std, dtype=torch.float64)
    predictive = RegressionPredictive(zero, stds)
    moved = RegressionPredictive(factor * (zero + shift), factor * stds)
    for form in ("gaussian", "mixture"):
        before = metrics.pll(predictive, target, form=form).item()
        after = metrics.pll(moved, factor * (target + shift), form=form).item()
        assert after == pytest.approx(before - math.log(factor), rel=1e-7, abs=1e-9)
        best = metrics.optimal_pll(target).item()
        assert before <= best + 1e-12 * (1 + abs(best))


def test_bad_arguments(make_regression):
    predictive, y = make_regression()
    for score in (metrics.pll, metrics.crps):
        with pytest.raises(InputError, match=r"form must be .* got 'normal'"):
            score(predictive, y, form="normal")
