"""Uncertainty against error and against strangeness: scikit-learn, SciPy, hand-made cases; ties counted exactly."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import ClassificationPredictive

TIED = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=25)


@settings(max_examples=40)
@given(TIED, TIED)
def test_ood_scores_equal_scikit_learn_with_ties(inside, outside):
    labels, doubts = [0] * len(inside) + [1] * len(outside), inside + outside
    inside, outside = torch.tensor(inside), torch.tensor(outside)
    assert metrics.auroc(inside, outside).item() == pytest.approx(sklearn_metrics.roc_auc_score(labels, doubts))
    expected = sklearn_metrics.average_precision_score(labels, doubts)
    assert metrics.aupr(inside, outside).item() == pytest.approx(expected)
    false, true, _ = sklearn_metrics.roc_curve(labels, doubts, drop_intermediate=False)
    assert metrics.fpr95(inside, outside).item() == pytest.approx(false[true >= 0.95 - 1e-12].min())


def test_ood_scores_by_hand():
    assert metrics.auroc([0.0, 1.0], [2.0, 3.0]).item() == 1
    assert metrics.fpr95([0.0, 1.0], [2.0, 3.0]).item() == 0
    assert metrics.auroc([1.0, 1.0], [1.0]).item() == 0.5
    assert metrics.fpr95([1.0, 1.0], [1.0]).item() == 1
    assert metrics.auroc([0.0, math.inf], [1.0]).item() == 0.5
    # 19 of 20 outside points reach 1, which one of four inside points does too
    assert metrics.fpr95([0.0, 0.0, 0.5, 2.0], [0.0] + [1.0] * 19).item() == 0.25


@pytest.mark.parametrize("score", [metrics.auroc, metrics.aupr, metrics.fpr95])
def test_an_empty_or_broken_set_is_refused(score):
    for inside, outside, match in (
        ([1.0, 2.0], [], r"uncertainty_out must be .* at least one real number, got shape \(0,\)"),
        ([], [1.0], r"uncertainty_in must be .* got shape \(0,\)"),
        ([1.0, math.nan], [1.0], "uncertainty_in has 1 NaN values out of 2"),
        ([1.0], torch.ones(2, 3), r"uncertainty_out must be .* got shape \(2, 3\).*flatten"),
    ):
        with pytest.raises(InputError, match=match):
            score(inside, outside)


def test_entropy_cdf(make_classification, make_regression):
    predictive, _ = make_classification(batch=30, classes=3, pixels=(2,))
    curve = metrics.entropy_cdf(predictive)
    assert curve.entropy[-1].item() == pytest.approx(math.log(3))
    assert curve.share[-1].item() == 1
    assert (curve.share.diff() >= 0).all()
    half = predictive.entropy.median()
    below = metrics.entropy_cdf(predictive, at=[-1.0, half.item()])
    assert below.share.tolist() == [0.0, 0.5]
    with pytest.raises(InputError, match=r"predictive must be .* got a RegressionPredictive"):
        metrics.entropy_cdf(make_regression()[0])
    with pytest.raises(InputError, match=r"at must be .* got shape \(0,\)"):
        metrics.entropy_cdf(predictive, at=[])


def test_entropy_cdf_ends_at_1_whatever_the_rounding():
    for classes in (2, 3, 7, 10, 11):
        uniform = ClassificationPredictive(torch.log_softmax(torch.zeros(1, 1, classes), 2))
        assert metrics.entropy_cdf(uniform).share[-1].item() == 1


def test_retention_curve_by_hand():
    curve = metrics.retention_curve([0.3, 0.1, 0.2, 0.4], [3.0, 1.0, 2.0, 6.0])
    assert curve.retained.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.error.tolist() == [1.0, 1.5, 2.0, 3.0]
    assert metrics.aurc([0.3, 0.1, 0.2, 0.4], [3.0, 1.0, 2.0, 6.0]).item() == pytest.approx(7.5 / 4)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2).map(float), st.integers(0, 5).map(float)), min_size=1, max_size=5))
def test_ties_count_as_the_average_over_all_orders(points):
    curves = []
    for order in itertools.permutations(points):
        ranking = sorted(order, key=lambda point: point[0])  # stable: ties stay in this order
        curves.append(np.cumsum([error for _, error in ranking]) / np.arange(1, len(ranking) + 1))
    uncertainty, error = zip(*points, strict=True)
    np.testing.assert_allclose(metrics.retention_curve(uncertainty, error).error, np.mean(curves, 0), atol=1e-12)


def test_uncertainty_without_information_gets_the_mean_error():
    error = torch.tensor([1.0, 0.0, 0.0, 3.0])
    assert metrics.aurc(torch.zeros(4), error).item() == pytest.approx(1.0)
    assert metrics.prediction_rejection_ratio(torch.zeros(4), error).item() == pytest.approx(0, abs=1e-12)


def test_prediction_rejection_ratio():
    error = torch.tensor([0.0, 1.0, 2.0, 5.0])
    assert metrics.prediction_rejection_ratio(10 * error, error).item() == pytest.approx(1)
    assert metrics.prediction_rejection_ratio(-error, error).item() == pytest.approx(-1)
    # Kept sums for the order 0, 2, 1, 5 are 0, 2, 3, 8 and for the errors' own 0, 1, 3, 8, against 2, 4, 6, 8.
    swapped = metrics.prediction_rejection_ratio([0.0, 2.0, 1.0, 3.0], error).item()
    assert swapped == pytest.approx((12 - 5) / (12 - 4))
    wrong = torch.tensor([True, False, False])
    assert metrics.prediction_rejection_ratio([0.9, 0.1, 0.2], wrong).item() == pytest.approx(1)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4).map(float), st.integers(0, 4).map(float)), min_size=2, max_size=30))
def test_spearman_equals_scipy_with_ties(points):
    uncertainty, error = zip(*points, strict=True)
    if len(set(uncertainty)) > 1 and len(set(error)) > 1:
        expected = stats.spearmanr(uncertainty, error).statistic
        assert metrics.spearman(uncertainty, error).item() == pytest.approx(expected, abs=1e-12)
    else:
        with pytest.raises(InputError, match=r"must have at least two different values, got \d+ equal ones"):
            metrics.spearman(uncertainty, error)


@pytest.mark.parametrize(
    "score", [metrics.retention_curve, metrics.aurc, metrics.prediction_rejection_ratio, metrics.spearman]
)
def test_bad_arguments(score):
    for uncertainty, error, match in (
        ([1.0, 2.0], [1.0, 2.0, 3.0], "uncertainty and error must have .* got 2 and 3 numbers"),
        ([1.0, 2.0], [1.0, math.inf], "error has 1 NaN or infinite"),
        ([], [], r"uncertainty must be .* got shape \(0,\)"),
        (["a", "b"], [1.0, 2.0], "uncertainty must be .* array of numbers, got list"),
        ([1j, 2.0], [1.0, 2.0], "uncertainty must hold real numbers, got torch.complex"),
        (torch.ones(2, 1), torch.ones(2, 1), r"uncertainty must be .* got shape \(2, 1\)"),
    ):
        with pytest.raises(InputError, match=match):
            score(uncertainty, error)


def test_equal_errors_leave_nothing_to_reject():
    with pytest.raises(InputError, match=r"error must have .* got 3 errors that are all 2.0"):
        metrics.prediction_rejection_ratio([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])


def test_arrays_that_are_views():
    uncertainty, error = np.array([0.1, 0.2, 0.3, 0.5]), np.array([1.0, 3.0, 2.0, 5.0])
    expected = stats.spearmanr(uncertainty[::-1], error).statistic
    assert metrics.spearman(uncertainty[::-1], error).item() == pytest.approx(expected)
    error.flags.writeable = False
    assert metrics.spearman(uncertainty[::-1], error).item() == pytest.approx(expected)
