"""Classification on tables."""

from __future__ import annotations

import numpy as np
import pytest

import bayesnorm as bn
from bayesnorm.errors import BayesNormError
from bayesnorm.metrics import nll
from bayesnorm.tabular import BayesNormClassifier


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """120 rows of three classes whose clouds touch."""
    generator = np.random.default_rng(0)
    numbers = np.arange(120) % 3
    X = generator.normal(size=(120, 2)) + 3 * np.array([[0, 0], [1, 0], [0, 1]])[numbers]
    return X, np.array(["ash", "birch", "elm"])[numbers]


def test_classes_are_learned(blobs, quick):
    X, y = blobs
    quick |= {"max_epochs": 40, "effective_batch_size": "cross-validated"}
    model = BayesNormClassifier(**quick).fit(X[:90], y[:90])
    assert model.classes_.tolist() == ["ash", "birch", "elm"]
    assert model.score(X[90:], y[90:]) > 0.75
    probs = model.predict_proba(X[90:])
    assert probs.shape == (30, 3)
    np.testing.assert_allclose(probs.sum(1), 1)
    assert (model.predict(X[90:]) == model.classes_[probs.argmax(1)]).all()
    predictive = model.predict_dist(X[90:])
    assert isinstance(predictive, bn.ClassificationPredictive)
    np.testing.assert_allclose(predictive.probs, probs)


@pytest.mark.parametrize("method", ["mcbn", "gaussian", "stochastic", "dropout", "ensemble"])
def test_every_method_doubts(blobs, quick, method):
    X, y = blobs
    model = BayesNormClassifier(**quick | {"max_epochs": 4}, method=method).fit(X, y)
    uncertainty = model.uncertainty(np.concatenate([X, [[100.0, -100.0]]]))
    assert list(uncertainty) == ["entropy", "mutual_information", "unusual", "reason", "unseen_columns"]
    assert (uncertainty["mutual_information"] >= 0).all()
    assert (uncertainty["entropy"] >= uncertainty["mutual_information"]).all()
    assert uncertainty["mutual_information"].max() > 0
    assert uncertainty["unusual"].iloc[-1]
    assert uncertainty["unusual"].mean() < 0.1


def test_what_was_chosen(blobs, quick):
    X, y = blobs
    quick |= {"method": "ensemble", "epochs": 40}  # without samples: what was ranked is what is kept
    selection = BayesNormClassifier(**quick).fit(X, y).selection_
    assert selection.score == "nll"
    assert list(selection.noise) == ["temperature"]
    held_out = selection.out_of_fold
    assert (held_out.target == np.arange(120) % 3).all()
    # the same networks on the same rows: ranked at the best of some temperatures, and kept at the best of all
    held_out_nll = float(nll(held_out.predictive, held_out.target))
    assert held_out_nll == pytest.approx(selection.chosen.score, rel=0.02)
    assert held_out_nll <= selection.chosen.score + 1e-6
    assert float(nll(held_out.predictive, held_out.target)) < np.log(3)


def test_given_values_are_taken(blobs, quick):
    X, y = blobs
    quick |= {"temperature": 2.0, "epochs": 3, "dropout_rate": 0.0, "batch_size": 8, "folds": None}
    model = BayesNormClassifier(**quick).fit(X, y)
    assert model.posterior_.likelihood == bn.Categorical(temperature=2.0)
    assert model.selection_.noise == {"temperature": 2.0}
    quick |= {"effective_batch_size": "elbo", "folds": 2}
    assert BayesNormClassifier(**quick).fit(X, y).selection_.effective_batch_size >= 8


def test_weights_move_probabilities(quick):
    X = np.zeros((80, 1)) + np.linspace(-1, 1, 80)[:, None]
    y = np.arange(80) % 2
    quick["max_epochs"] = 40
    plain = BayesNormClassifier(**quick).fit(X, y).predict_proba(X)[:, 1].mean()
    leaning = BayesNormClassifier(**quick).fit(X, y, sample_weight=np.where(y == 1, 4.0, 1.0))
    assert plain == pytest.approx(0.5, abs=0.15)
    assert leaning.predict_proba(X)[:, 1].mean() == pytest.approx(0.8, abs=0.15)


def test_a_class_with_a_single_row(blobs, quick):
    X, y = blobs
    y = y.copy()
    y[y == "elm"] = "ash"
    y[0] = "yew"
    model = BayesNormClassifier(**quick).fit(X, y)
    assert model.predict_proba(X).shape == (120, 3)


def test_a_temperature_is_positive(blobs, quick):
    with pytest.raises(BayesNormError, match=r"^temperature must be .*, got "):
        BayesNormClassifier(**quick, temperature=0.0).fit(*blobs)
