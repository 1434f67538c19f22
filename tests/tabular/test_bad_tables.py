"""Tables and targets that cannot be used get one line that says why."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from bayesnorm.errors import InputError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor

X = np.random.default_rng(0).normal(size=(20, 3))
Y = X[:, 0]
TWICE = pd.DataFrame(X, columns=["a", "b", "a"])


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        (sparse.csr_array(X), Y, "X is sparse"),
        (TWICE, Y, "X has two columns called 'a'"),
        (pd.DataFrame(index=range(20)), Y, "0 feature"),
        (pd.DataFrame(X).iloc[:0], Y[:0], "y must have the shape"),
        (X[:1], Y[:1], "X has n_samples=1 rows"),
        (X[:7], Y[:7], "X has n_samples=7 rows .* Pass at least 8 rows"),
        (X, Y[:19], "inconsistent numbers of samples"),
        (X, np.full(20, 3.5), "y is 3.5 in all 20 rows"),
        (X, np.stack([Y, np.ones(20)], 1), "y is 1 in all 20 rows in column 1"),
        (X, np.where(np.arange(20) == 4, np.nan, Y), "Input y contains NaN"),
        (X, np.where(np.arange(20) == 4, np.inf, Y), "Input y contains infinity"),
        (X, 1e300 * Y, r"y contains .*e.300, but the largest accepted number is 1e\+100"),
        (X, np.array(["low", "high"] * 10), "y contains 'low', which is not a number"),
        (X, None, "requires y to be passed"),
        (np.where(X > 2, np.inf, X) + np.where(X.max() == X, np.inf, 0), Y, "contains infinity"),
        (X[:, :, None], Y, "dim 3|3D|3 dim"),
    ],
)
def test_regression(table, target, message, quick):
    with pytest.raises(InputError, match=message):
        BayesNormRegressor(**quick).fit(table, target)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (np.zeros(20), "y has only one class, '0.0', in all 20 rows"),
        (np.array(["a", None] * 10, dtype=object), "Input y contains NaN in row 1. Drop rows without a label"),
        (np.where(np.arange(20) == 4, np.nan, 1.0), "Input y contains NaN in row 4"),
        (Y, "Unknown label type: continuous"),
        (np.array([1, "a"] * 10, dtype=object), "Unknown label type"),
        (np.eye(2)[[0, 1] * 10], "y should be a 1d array"),
        ([0, 1], "inconsistent numbers of samples"),
        (None, "requires y to be passed"),
    ],
)
def test_classification(target, message, quick):
    with pytest.raises(InputError, match=message):
        BayesNormClassifier(**quick).fit(X, target)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(20), "is zero for every row"),
        (-np.ones(20), "contains negative"),
        (np.full(20, np.nan), "contains negative, infinite or missing"),
        (np.ones(19), r"has the shape \(19,\) for 20 rows"),
        (["a"] * 20, "sample_weight must be numbers"),
        (np.arange(20) < 5, "too few"),
    ],
)
def test_weights(weights, message, quick):
    with pytest.raises(InputError, match=message) as error:
        BayesNormRegressor(**quick).fit(X, Y, sample_weight=weights)
    assert "\n" not in str(error.value)


def test_predictions_before_fit_and_of_other_widths(quick):
    from sklearn.exceptions import NotFittedError

    for call in ("predict", "uncertainty", "predict_interval", "predict_dist"):
        with pytest.raises(NotFittedError):
            getattr(BayesNormRegressor(), call)(X)
    with pytest.raises(NotFittedError):
        BayesNormClassifier().predict_proba(X)
    with pytest.raises(NotFittedError):
        BayesNormRegressor().save("nowhere")
    model = BayesNormRegressor(**quick).fit(X, Y)
    with pytest.raises(InputError, match="X has 2 features, but BayesNormRegressor is expecting 3"):
        model.predict(X[:, :2])
    for nothing in (X[:0], pd.DataFrame(X).iloc[:0]):
        with pytest.raises(InputError, match=r"Found array with 0 sample"):
            model.predict(nothing)
