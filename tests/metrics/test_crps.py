"""CRPS against scoringrules, quadrature, hand-made cases and its own laws."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings, strategies as st

from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.metrics import checks
from bayesnorm.predictive import RegressionPredictive

NUMBERS = st.floats(-50, 50, allow_subnormal=False)
SCALES = st.floats(1e-3, 20)


def mixture(means: list[float], stds: list[float]) -> RegressionPredictive:
    columns = torch.tensor([means, stds], dtype=torch.float64)[..., None]
    return RegressionPredictive(columns[0], columns[1])


def test_gaussian_form_equals_scoringrules(make_regression):
    predictive, y = make_regression(shape=(50, 2))
    expected = scoringrules.crps_normal(y.numpy(), predictive.mean.numpy(), predictive.std.numpy())
    np.testing.assert_allclose(metrics.crps_points(predictive, y), expected, rtol=1e-12)
    assert metrics.crps(predictive, y).item() == pytest.approx(expected.mean(), rel=1e-12)
    torch.testing.assert_close(metrics.crps_points(predictive, y), predictive.crps(y))


def test_mixture_form_equals_scoringrules(make_regression):
    for samples in (1, 2, 7):
        predictive, y = make_regression(samples=samples, shape=(30, 2))
        weights = predictive.weights.view(-1, 1, 1).expand_as(predictive.loc)
        expected = scoringrules.crps_mixnorm(
            y.numpy(), predictive.loc.numpy(), predictive.scale.numpy(), weights.numpy(), m_axis=0
        )
        np.testing.assert_allclose(metrics.crps_points(predictive, y, form="mixture"), expected, rtol=1e-10)


def test_a_scale_shared_by_all_samples_takes_the_short_way_to_the_same_result(make_regression):
    predictive, y = make_regression(samples=6, shape=(9, 2))
    shared = RegressionPredictive(predictive.loc, predictive.scale[:1], predictive.weights)
    spelled_out = RegressionPredictive(predictive.loc, shared.scale.clone(), predictive.weights)
    assert shared.scale.stride(0) == 0
    assert spelled_out.scale.stride(0) != 0
    torch.testing.assert_close(
        metrics.crps_points(shared, y, form="mixture"), metrics.crps_points(spelled_out, y, form="mixture")
    )


def test_samples_without_noise_are_an_ensemble(make_regression):
    predictive, y = make_regression(samples=8, shape=(20,))
    bare = RegressionPredictive(predictive.loc, torch.zeros((), dtype=torch.float64))
    expected = scoringrules.crps_ensemble(y.numpy(), predictive.loc.numpy(), m_axis=0)
    np.testing.assert_allclose(metrics.crps_points(bare, y, form="mixture"), expected, rtol=1e-12)


def test_a_perfect_forecast_scores_0_and_a_certain_one_its_absolute_error(make_gaussian):
    for form in ("gaussian", "mixture"):
        y = torch.tensor([1.0, -2.0, 0.0])
        assert metrics.crps(make_gaussian(y, 0.0), y, form=form).item() == 0
        torch.testing.assert_close(
            metrics.crps_points(make_gaussian(y, 0.0), y + torch.tensor([1.0, 0.0, -3.0]), form=form),
            torch.tensor([1.0, 0.0, 3.0]),
        )


@settings(max_examples=30)
@given(st.lists(st.tuples(NUMBERS, SCALES), min_size=1, max_size=5), NUMBERS)
def test_no_gaussian_beats_the_optimum_and_nothing_beats_0(components, y):
    predictive = mixture(*map(list, zip(*components, strict=True)))
    target = torch.tensor([y], dtype=torch.float64)
    best = metrics.optimal_crps(target - predictive.mean)
    assert (metrics.crps_points(predictive, target) >= best - 1e-12 * (1 + best)).all()
    assert metrics.crps(predictive, target, form="mixture").item() >= 0


@settings(max_examples=30)
@given(st.lists(st.tuples(NUMBERS, SCALES), min_size=1, max_size=5), NUMBERS, NUMBERS, st.floats(1e-3, 1e3))
def test_shift_changes_nothing_and_scale_multiplies(components, y, shift, factor):
    means, stds = map(list, zip(*components, strict=True))
    target = torch.tensor([y], dtype=torch.float64)
    moved = mixture([factor * (mean + shift) for mean in means], [factor * std for std in stds])
    for form in ("gaussian", "mixture"):
        before = metrics.crps(mixture(means, stds), target, form=form)
        after = metrics.crps(moved, factor * (target + shift), form=form)
        assert after.item() == pytest.approx(factor * before.item(), rel=1e-7, abs=1e-11 * factor)


def test_rounding_does_not_make_it_negative():
    samples = torch.tensor([[1.2556064]] * 3 + [[20.183144]])
    for rare in torch.logspace(-9, -5, 300).tolist():
        predictive = RegressionPredictive(samples, torch.tensor(0.0), torch.tensor([1.0, 1.0, 1.0, rare]))
        assert metrics.crps(predictive, samples[0], form="mixture").item() >= 0


def test_blocks_change_nothing(make_regression, monkeypatch):
    for per_output in (False, True):
        predictive, y = make_regression(samples=4, shape=(13, 3, 2))
        if per_output:
            predictive = RegressionPredictive(predictive.loc, predictive.scale[0, 0], predictive.weights)
        for score in (metrics.pll_points, metrics.pit, partial(metrics.crps_points, form="mixture")):
            whole = score(predictive, y)
            for count in (0, 1, 5, 17):
                with monkeypatch.context() as patch:
                    patch.setattr(checks, "MEMORY", checks.ARRAYS * 4 * 8 * count)
                    torch.testing.assert_close(score(predictive, y), whole, rtol=1e-14, atol=0)


def test_memory_stays_within_its_bound(monkeypatch):
    loc, limit = torch.zeros(10, 5000), 10 * 4 * checks.ARRAYS * 100
    monkeypatch.setattr(checks, "MEMORY", limit)
    sizes = []

    def score(loc, scale, y):
        sizes.append(loc.numel() * loc.element_size() * checks.ARRAYS)
        assert len(scale) == 1
        return y

    y = torch.arange(5000.0)
    torch.testing.assert_close(checks.map_points(score, RegressionPredictive(loc, torch.ones(())), y), y)
    assert max(sizes) == limit
    assert len(sizes) == 50


def test_gradients_pass(make_regression):
    predictive, y = make_regression(samples=3, shape=(4,))
    loc = predictive.loc.clone().requires_grad_()

    def score(loc):
        return metrics.crps(RegressionPredictive(loc, predictive.scale, predictive.weights), y, form="mixture")

    assert torch.autograd.gradcheck(score, (loc,))


def test_mixture_form_wants_normal_noise(make_regression, flat_noise):
    predictive, y = make_regression()
    other = RegressionPredictive(predictive.loc, predictive.scale, None, flat_noise)
    assert metrics.crps(other, y) > 0
    with pytest.raises(InputError, match=r'form="mixture".*FlatNoise. Use form="gaussian"'):
        metrics.crps(other, y, form="mixture")


def test_dtype_follows_the_predictive(make_regression):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        predictive, y = make_regression()
        same = RegressionPredictive(predictive.loc.to(dtype), predictive.scale.to(dtype))
        exact = RegressionPredictive(predictive.loc, predictive.scale)
        for form in ("gaussian", "mixture"):
            score = metrics.crps(same, y.numpy(), form=form)
            assert score.dtype == dtype
            assert score.shape == ()
            expected = metrics.crps(exact, y, form=form).item()
            # A bfloat16 target near 5 is off by up to 2^-7 of it, and so is its score.
            assert score.item() == pytest.approx(expected, abs=10 * torch.finfo(dtype).eps * 5)
