"""Scores of pixels against values computed by hand, and against plain loops."""

import math

import numpy as np
import pytest
import torch

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.metrics import mean_iou
from experiments.segmentation.scores import boundary_distance, confusion_matrix, patches, segmentation_scores

TRUE = torch.tensor([[[0, 0, 1, 1], [0, 0, 1, 9]]])
SEEN = torch.tensor([[[0, 1, 1, 1], [0, 0, 0, 0]]])


def some_predictions(shape=(3, 5, 8, 6), seed=0):
    generator = torch.Generator().manual_seed(seed)
    predictive = bn.Categorical().predictive(torch.randn(4, *shape, generator=generator))
    y = torch.randint(0, shape[1] + 1, (shape[0], *shape[2:]), generator=generator)
    return predictive, y  # the last class is void


def test_counts_and_scores_by_hand():
    counts = confusion_matrix(SEEN, TRUE, 3, ignore_index=9)
    assert counts.tolist() == [[3, 1, 0], [1, 2, 0], [0, 0, 0]]
    scores = segmentation_scores(counts)
    assert float(scores.global_accuracy) == pytest.approx(5 / 7)
    assert float(scores.class_accuracy) == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert scores.iou[:2].tolist() == pytest.approx([3 / 5, 2 / 4])
    assert math.isnan(scores.iou[2])  # neither there nor predicted
    assert float(scores.mean_iou) == pytest.approx((3 / 5 + 2 / 4) / 2)


def test_counts_of_parts_add_up_to_the_same_mean_iou():
    predictive, y = some_predictions()
    parts = [confusion_matrix(predictive.label[i], y[i], 5, ignore_index=5) for i in range(3)]
    expected = mean_iou(predictive, y, ignore_index=5)
    torch.testing.assert_close(segmentation_scores(sum(parts)).mean_iou.float(), expected)


def test_patches_by_hand():
    """Four patches of 2 x 2 pixels: right and sure, right and unsure, wrong and sure, wrong and unsure."""
    y = torch.zeros(1, 4, 4, dtype=torch.long)
    label = y.clone()
    label[0, 2:] = 1
    uncertainty = torch.zeros(1, 4, 4)
    uncertainty[0, :, 2:] = 1.0
    label[0, 0, 0] = 1  # three of four are still more than a half
    y[0, 0, 2] = 7  # void
    uncertainty[0, 0, 2] = 50.0
    found = patches(label, uncertainty, y, size=2, ignore_index=7)
    assert found.accurate.tolist() == [True, True, False, False]
    assert found.uncertainty.tolist() == [0.0, 1.0, 0.0, 1.0]
    at = found.at([-1.0, 0.5, 2.0])
    assert at.pavpu.tolist() == [2 / 4, 2 / 4, 2 / 4]  # none is certain; half; all are
    assert at.uncertain_if_inaccurate.tolist() == [1, 1 / 2, 0]
    assert at.accurate_if_certain[1:].tolist() == [1 / 2, 2 / 4]
    assert math.isnan(at.accurate_if_certain[0])
    half = patches(label, uncertainty, y, size=2, least=0.8, ignore_index=7)
    assert half.accurate.tolist() == [False, True, False, False]


def test_patches_as_a_plain_loop_counts_them():
    predictive, y = some_predictions((2, 3, 9, 7))
    uncertainty, size = predictive.entropy, 3
    found = patches(predictive.label, uncertainty, y, size=size, ignore_index=3)
    accurate, level = [], []
    for image in range(2):
        for row in range(0, 9, size):
            for column in range(0, 6, size):
                place = image, slice(row, row + size), slice(column, column + size)
                kept = y[place] != 3
                if kept.any():
                    accurate.append(float((predictive.label[place] == y[place])[kept].float().mean()) > 0.5)
                    level.append(float(uncertainty[place][kept].mean()))
    assert found.accurate.tolist() == accurate
    assert found.uncertainty.tolist() == pytest.approx(level)
    threshold = sorted(level)[len(level) // 2]
    right = [a == (d <= threshold + 1e-6) for a, d in zip(accurate, level, strict=True)]
    assert float(found.at([threshold + 1e-6]).pavpu) == pytest.approx(np.mean(right))


def test_distances_by_hand():
    y = torch.tensor([[[0, 0, 0, 1], [0, 0, 9, 1], [0, 0, 0, 1]]])
    found = boundary_distance(y, ignore_index=9)
    assert found[0, 0].tolist() == [3, 2, 1, 1]
    assert found[0, 1, [0, 1, 3]].tolist() == pytest.approx([3, 2, math.sqrt(2)])  # across the void pixel
    assert math.isnan(found[0, 1, 2])
    assert torch.isinf(boundary_distance(torch.zeros(1, 2, 2, dtype=torch.long))).all()


def test_bad_arguments():
    for call, message in (
        (lambda: confusion_matrix(SEEN, TRUE[0], 3), "label and y must have the same shape"),
        (lambda: confusion_matrix(SEEN, TRUE, 3), "y must have classes from 0 to 2, got 0 to 9"),
        (lambda: segmentation_scores(torch.zeros(2, 2)), r"confusion must be .* got shape \(2, 2\) and sum 0"),
        (lambda: segmentation_scores(torch.ones(2, 3)), r"confusion must be .* got shape \(2, 3\)"),
        (
            lambda: patches(SEEN, SEEN[0], TRUE),
            r"label, uncertainty and y must all have shape \(batch, height, width\)",
        ),
        (lambda: patches(SEEN, SEEN, TRUE, size=0), "size must be .* got 0"),
        (lambda: patches(SEEN, SEEN, TRUE, size=1, least=1), "least must be .* got 1"),
        (lambda: patches(SEEN, SEEN, TRUE * 0 - 100, size=2), "y has no patch of 2 x 2 pixels with a label"),
        (lambda: boundary_distance(TRUE[0]), r"y must have shape \(batch, height, width\)"),
    ):
        with pytest.raises(InputError, match=message):
            call()
