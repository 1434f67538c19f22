"""The estimators as scikit-learn's own checks and tools see them."""

import importlib
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bayesnorm.tabular
from bayesnorm.errors import MissingExtraError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor

from .conftest import line_model

QUICKEST = {
    "encoding": "plain",
    "hidden": (10,),
    "dropout_rate": 0.0,
    "weight_decay": 1e-2,
    "learning_rate": 3e-2,
    "folds": 2,
    "members": 1,
    "epochs": 8,
    "samples": 4,
    "effective_batch_size": None,
}


def not_for_us(estimator):
    reason = "rows are learned in random batches, so that a weight of 2 is not bit for bit the same as two equal rows"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [BayesNormRegressor(**QUICKEST, heteroscedastic=False), BayesNormClassifier(**QUICKEST)],
    expected_failed_checks=not_for_us,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_parameters_are_kept_as_given():
    for kind in (BayesNormRegressor, BayesNormClassifier):
        parameters = {"hidden": [7], "weight_decay": [1e-3, 1e-2], "folds": 3, "random_state": 4}
        result = clone(kind(**parameters)).get_params()
        assert {name: result[name] for name in parameters} == parameters


def test_pipeline_and_grid_search(line):
    X, y = line
    regressor = BayesNormRegressor(**QUICKEST, heteroscedastic=False)
    pipeline = make_pipeline(StandardScaler(), regressor).set_output(transform="pandas")
    search = GridSearchCV(pipeline, {"bayesnormregressor__hidden": [(4,), (10,)]}, cv=2).fit(X, y)
    mean, std = search.best_estimator_.predict(X, return_std=True)
    assert mean.shape == std.shape == (80,)
    assert (std > 0).all()


def test_scores_are_those_of_scikit_learn(line, quick):
    X, y = line
    quick["max_epochs"] = 40
    model = line_model()
    explained = 1 - np.square(y - model.predict(X)).sum() / np.square(y - y.mean()).sum()
    assert model.score(X, y) == pytest.approx(explained)
    labels = np.where(y > 5, "high", "low")
    classifier = BayesNormClassifier(**quick)
    assert cross_val_score(classifier, X, labels, cv=2).mean() > 0.8


@pytest.mark.parametrize("absent", ["sklearn", "pandas"])
def test_a_missing_extra_is_named(absent, monkeypatch):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=r"pip install scikit-learn pandas"):
        importlib.reload(bayesnorm.tabular)
