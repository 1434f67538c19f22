"""Scores of class probabilities against scikit-learn and hand-made cases, per row and per pixel."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import ClassificationPredictive

SCORES = [
    metrics.nll,
    metrics.brier,
    metrics.accuracy,
    metrics.ece,
    lambda predictive, y, **options: metrics.ece(predictive, y, adaptive=True, **options),
    metrics.mean_iou,
]


def certain(probs: list[list[float]]) -> ClassificationPredictive:
    """One draw with these probabilities, (batch, class)."""
    return ClassificationPredictive(torch.tensor(probs, dtype=torch.float64).log()[None])


def test_nll_brier_accuracy_and_iou_equal_scikit_learn(make_classification):
    predictive, y = make_classification(batch=200)
    probs, labels = predictive.probs.numpy(), predictive.label.numpy()
    assert metrics.nll(predictive, y).item() == pytest.approx(sklearn_metrics.log_loss(y, probs), rel=1e-10)
    one_hot = np.eye(4)[y.numpy()]
    assert metrics.brier(predictive, y).item() == pytest.approx(((probs - one_hot) ** 2).sum(1).mean(), rel=1e-10)
    assert metrics.accuracy(predictive, y).item() == pytest.approx(sklearn_metrics.accuracy_score(y, labels))
    iou = sklearn_metrics.jaccard_score(y, labels, average="macro")
    assert metrics.mean_iou(predictive, y).item() == pytest.approx(iou)


def reference_ece(confidence: np.ndarray, right: np.ndarray, bins: list[np.ndarray]) -> float:
    """The definition, bin by bin."""
    total = 0.0
    for inside in bins:
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


def test_ece_equals_its_definition(make_classification):
    for bins in (1, 7, 15):
        predictive, y = make_classification(batch=300)
        confidence, right = predictive.confidence.numpy(), (predictive.label == y).numpy()
        edges = np.linspace(0, 1, bins + 1)
        equal_width = [(confidence > low) & (confidence <= high) for low, high in itertools.pairwise(edges)]
        assert metrics.ece(predictive, y, bins=bins).item() == pytest.approx(
            reference_ece(confidence, right, equal_width)
        )
        ranks = confidence.argsort().argsort()
        equal_number = [(ranks * bins) // 300 == number for number in range(bins)]
        adaptive = metrics.ece(predictive, y, bins=bins, adaptive=True).item()
        if 300 % bins == 0:
            assert adaptive == pytest.approx(reference_ece(confidence, right, equal_number))
        assert metrics.ece(predictive, y, bins=bins, adaptive=True) == metrics.ece(
            ClassificationPredictive(predictive.log_probs.flip(1), predictive.weights),
            y.flip(0),
            bins=bins,
            adaptive=True,
        )


def test_ece_by_hand():
    predictive = certain([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    y = [0, 1, 1, 1]
    # confidence .9, .9 | .8 | .6 with accuracy 1/2 | 1 | 1
    assert metrics.ece(predictive, y, bins=10).item() == pytest.approx((2 * 0.4 + 0.2 + 0.4) / 4)
    # two bins of two: .6 and .8 both right, .9 and .9 half right
    assert metrics.ece(predictive, y, bins=2, adaptive=True).item() == pytest.approx((2 * 0.3 + 2 * 0.4) / 4)
    # the last bin holds the certain; more adaptive bins than points
    assert metrics.ece(certain([[1.0, 0.0], [1.0, 0.0]]), [0, 1]).item() == pytest.approx(0.5)
    few = certain([[0.9, 0.1], [0.3, 0.7]])
    assert metrics.ece(few, [0, 0], bins=15, adaptive=True).item() == pytest.approx((0.1 + 0.7) / 2)


def test_points_of_equal_confidence_share_an_adaptive_bin():
    predictive = certain([[0.7, 0.3]] * 6)
    for y in ([0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0]):
        assert metrics.ece(predictive, y, bins=3, adaptive=True).item() == pytest.approx(0.2)


def test_reliability_curve(make_classification):
    predictive, y = make_classification(batch=100)
    curve = metrics.reliability_curve(predictive, y, bins=10)
    assert curve.share.sum().item() == pytest.approx(1)
    filled = curve.share > 0
    assert (curve.confidence[~filled].isnan()).all()
    assert (curve.share[filled] * curve.accuracy[filled]).sum().item() == pytest.approx(
        metrics.accuracy(predictive, y).item()
    )


def test_a_perfect_forecast():
    predictive, y = certain([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), [0, 2]
    values = [score(predictive, y).item() for score in SCORES]
    assert values == [0, 0, 1, 0, 0, 1]
    assert metrics.nll(predictive, [1, 2]).item() == math.inf


def test_mean_iou_by_hand():
    predictive = certain([[0.9, 0.1, 0], [0.9, 0.1, 0], [0.1, 0.9, 0], [0.1, 0.9, 0]])
    # class 0: 1 of 3; class 1: 1 of 3; class 2 is nowhere and takes no part
    assert metrics.mean_iou(predictive, [0, 1, 1, 0]).item() == pytest.approx(1 / 3)
    # class 2 true once, never found
    assert metrics.mean_iou(predictive, [0, 0, 1, 2]).item() == pytest.approx((1 + 1 / 2 + 0) / 3)


def test_pixels_are_points(make_classification):
    for score in SCORES:
        predictive, y = make_classification(batch=6, pixels=(5, 4))
        flat = ClassificationPredictive(predictive.log_probs.movedim(2, -1).flatten(1, 3), predictive.weights)
        torch.testing.assert_close(score(predictive, y), score(flat, y.flatten()))


def test_what_the_likelihood_leaves_out_is_left_out(make_classification):
    for score in SCORES:
        for void in (0, 2, 11):
            predictive, y = make_classification(batch=60)
            y[::5] = void
            y[1::7] = 9
            voided = ClassificationPredictive(predictive.log_probs, predictive.weights, ignore_index=void)
            seen = (y != void) & (y != 9)
            rest = ClassificationPredictive(predictive.log_probs[:, seen], predictive.weights)
            torch.testing.assert_close(score(voided, y, ignore_index=9), score(rest, y[seen]))
            torch.testing.assert_close(score(voided, torch.where(y == 9, void, y)), score(rest, y[seen]))


@pytest.mark.parametrize("score", SCORES)
def test_bad_targets_and_predictives(make_classification, make_regression, score):
    predictive, y = make_classification(batch=5)
    for argument, labels, match in (
        (predictive, [0, 1, 2, 3, 4], "y has .* 0 to 4.* 0 to 3"),
        (predictive, [0, 1, 2, 3, -1], "y has .* -1 to"),
        (predictive, y[:4], r"y has shape \(4,\)"),
        (predictive, [0.5, 1.0, math.nan, 1.0, 1.0], r"y.* \(5,\) and torch.float"),
        (make_regression()[0], y, "predictive must be a ClassificationPredictive.* got a RegressionPredictive"),
        (ClassificationPredictive(predictive.log_probs * math.nan), y, "has NaN probabilities"),
        (ClassificationPredictive(torch.zeros(2, 0, 3)), [], "predictive is empty"),
    ):
        with pytest.raises(InputError, match=match):
            score(argument, labels)
    with pytest.raises(InputError, match=r"all 5 labels are ignore_index=11"):
        score(predictive, [11] * 5, ignore_index=11)


def test_calibration_of_flat_points_is_that_of_the_predictive():
    generator = torch.Generator().manual_seed(0)
    predictive = bn.Categorical().predictive(torch.randn(4, 3, 5, 8, 6, generator=generator))
    y = torch.randint(0, 6, (3, 8, 6), generator=generator)  # class 5 is void
    valid = y != 5
    for adaptive in (False, True):
        curve = metrics.confidence_curve(predictive.confidence[valid], (predictive.label == y)[valid], 7, adaptive)
        expected = metrics.ece(predictive, y, bins=7, adaptive=adaptive, ignore_index=5)
        torch.testing.assert_close(curve.error.float(), expected)
    with pytest.raises(InputError, match=r"confidence and right must have .* got 1 and 2 numbers"):
        metrics.confidence_curve([0.5], [1.0, 0.0])
