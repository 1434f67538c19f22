"""Scores of pixels against values computed by hand, and against plain loops."""

import math

import pytest
import torch

from experiments.segmentation.scores import boundary_distance, confusion_matrix, patches, segmentation_scores

TRUE = torch.tensor([[[0, 0, 1, 1], [0, 0, 1, 9]]])
SEEN = torch.tensor([[[0, 1, 1, 1], [0, 0, 0, 0]]])


def test_counts_and_scores_by_hand():
    counts = confusion_matrix(SEEN, TRUE, 3, ignore_index=9)
    assert counts.tolist() == [[3, 1, 0], [1, 2, 0], [0, 0, 0]]
    scores = segmentation_scores(counts)
    assert float(scores.global_accuracy) == pytest.approx(5 / 7)
    assert float(scores.class_accuracy) == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert scores.iou[:2].tolist() == pytest.approx([3 / 5, 2 / 4])
    assert math.isnan(scores.iou[2])  # neither there nor predicted
    assert float(scores.mean_iou) == pytest.approx((3 / 5 + 2 / 4) / 2)


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


def test_distances_by_hand():
    y = torch.tensor([[[0, 0, 0, 1], [0, 0, 9, 1], [0, 0, 0, 1]]])
    found = boundary_distance(y, ignore_index=9)
    assert found[0, 0].tolist() == [3, 2, 1, 1]
    assert found[0, 1, [0, 1, 3]].tolist() == pytest.approx([3, 2, math.sqrt(2)])  # across the void pixel
    assert math.isnan(found[0, 1, 2])
    assert torch.isinf(boundary_distance(torch.zeros(1, 2, 2, dtype=torch.long))).all()
