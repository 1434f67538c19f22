"""Intervals as wide as held-out rows needed, and what one pass of the network tells of a table."""

import numpy as np
import pandas as pd
import pytest
import torch

from bayesnorm.errors import InputError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor

from .conftest import line_model, mixed_model


def test_intervals_hold_as_many_held_out_rows_as_they_say(quick):
    generator = np.random.default_rng(3)
    X = generator.normal(size=(400, 1))
    y = X[:, 0] + generator.standard_t(2, size=400)  # tails that normal noise does not have
    model = BayesNormRegressor(**quick).fit(X, y)
    held_out = model.selection_.out_of_fold
    for level in (0.5, 0.9):
        lower, upper = model.interval_levels_.interval(held_out.predictive, level)
        target = torch.from_numpy(held_out.target)
        share = float(((lower <= target) & (target <= upper)).double().mean())
        assert share == pytest.approx(level, abs=3 / 400)
        later = generator.normal(size=(2000, 1))
        truth = later[:, 0] + generator.standard_t(2, size=2000)
        low, high = model.predict_interval(later, level)
        inside = ((low <= truth) & (truth <= high)).mean()
        # 4 standard errors of the share among 400 held-out and 2000 new rows
        assert inside == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) * (1 / 400 + 1 / 2000)))


def test_levels_are_fractions_of_any_floating_type(line):
    model = line_model()
    with pytest.raises(InputError, match=r"level must be .*, got 90"):
        model.predict_interval(line[0], 90)
    for level in (np.float32(0.5), np.float64(0.5)):
        np.testing.assert_array_equal(model.predict_interval(line[0], level), model.predict_interval(line[0], 0.5))


def test_the_transform_agrees_with_the_intervals(line, quick):
    X, y = line
    y = np.stack([y, np.exp(y / 4)], 1)  # each output has levels of its own
    model = BayesNormRegressor(**quick).fit(X, y)
    predictive = model.predict_dist(X)
    transform = model.interval_levels_.transform(predictive.cdf(y).numpy())
    assert transform.shape == y.shape
    assert ((transform >= 0) & (transform <= 1)).all()
    for level in (0.3, 0.8):
        lower, upper = model.predict_interval(X, level)
        np.testing.assert_array_equal(np.abs(transform - 0.5) <= level / 2, (lower <= y) & (y <= upper))


@pytest.mark.parametrize("estimator", [BayesNormRegressor, BayesNormClassifier])
def test_predictions_and_uncertainty_of_one_pass(mixed, quick, estimator, monkeypatch):
    X, y = mixed
    model = mixed_model() if estimator is BayesNormRegressor else estimator(**quick).fit(X, y > np.median(y))
    passes = []
    real = type(model)._predictive_of
    monkeypatch.setattr(type(model), "_predictive_of", lambda self, x: passes.append(1) or real(self, x))
    predictive, uncertainty = model.predict_with_uncertainty(X[:7])
    assert len(passes) == 1
    pd.testing.assert_frame_equal(uncertainty, model.uncertainty(X[:7]))
    name = "mean" if estimator is BayesNormRegressor else "probs"
    assert torch.equal(getattr(predictive, name), getattr(model.predict_dist(X[:7]), name))
