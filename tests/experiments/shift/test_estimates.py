"""Estimates of the error from papers against small examples, and frost against its recipe."""

import numpy as np
import pytest

from experiments.shift import frost as frost_module
from experiments.shift.peers.estimates import ESTIMATORS, CleanRecord, calibrated_confidence, optimal_transport


@pytest.fixture(scope="module")
def clean():
    """Calibrated probabilities of three classes, and labels drawn from them."""
    random = np.random.default_rng(0)
    probs = random.dirichlet([0.3, 0.3, 0.3], 4000)
    labels = (probs.cumsum(1) < random.random((4000, 1))).sum(1)
    return probs, labels, CleanRecord(probs, labels)


def test_every_estimate_is_right_on_clean_images(clean):
    probs, labels, record = clean
    error = (probs.argmax(1) != labels).mean()
    for name, estimate in ESTIMATORS.items():
        few = probs[:500]
        truth = (few.argmax(1) != labels[:500]).mean()
        # The standard error of 500 labels; COT may match other labels than the predicted ones, which costs more.
        allowed = 4 * (error * (1 - error) / 500) ** 0.5
        assert abs(estimate(few, record) - truth) < allowed, name


def test_transport_is_the_cheapest_of_all_matchings():
    record = CleanRecord(np.eye(2), np.array([0, 1]))
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.1, 0.9]])
    # Two images per class: the third, which is the least certain, takes the other one.
    assert optimal_transport(probs, record) == pytest.approx((0.1 + 0.2 + 0.7 + 0.1) / 4)


def test_calibration_mends_too_confident_probabilities(clean):
    probs, labels, _ = clean
    sharp = probs**3 / (probs**3).sum(1, keepdims=True)
    record = CleanRecord(sharp, labels)
    error = (sharp.argmax(1) != labels).mean()
    assert 1 - sharp.max(1).mean() < error - 0.05
    assert calibrated_confidence(sharp, record) == pytest.approx(error, abs=0.02)


def test_frost_adds_a_piece_of_a_photograph(monkeypatch):
    photograph = np.arange(40 * 50 * 3).reshape(40, 50, 3).astype(np.uint8)
    monkeypatch.setattr(frost_module, "photographs", lambda: [photograph] * 5)
    images = np.full((3, 32, 32, 3), 100, np.uint8)
    result = frost_module.frost(images, 4)
    ice = (result.astype(float) - 0.85 * 100) / 0.4
    pieces = [photograph[i : i + 32, j : j + 32] for i in range(8) for j in range(18)]
    for image in ice:
        assert min(np.abs(image - piece).max() for piece in pieces) <= 1 / 0.4
    assert (frost_module.frost(images, 4) == result).all()
