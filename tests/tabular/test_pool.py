"""Members of several kinds: their weights, their predictions together, files, and what all of them must do."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from bayesnorm import files
from bayesnorm.errors import FileFormatError
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, load

from .conftest import QUICK, mixed_rows

ALL = {**QUICK, "networks_only": False}


def bends(rows=200, seed=0):
    """A target that steps and bends, with noise that is larger for large a."""
    generator = np.random.default_rng(seed)
    X = pd.DataFrame({"a": generator.uniform(-3, 3, rows), "b": generator.normal(size=rows)})
    noise = generator.normal(size=rows) * np.where(X.a > 0, 0.5, 0.05)
    return X, 10 + np.sin(2 * X.a) + 2 * (X.b > 0) + noise


@pytest.fixture(scope="module")
def regressor():
    return BayesNormRegressor(**ALL).fit(*bends())


@pytest.fixture(scope="module")
def classifier():
    X, y = bends()
    return BayesNormClassifier(**ALL).fit(X, np.digitize(y, [10, 11.5]))


def weights_of(model):
    return {kind.kind: kind.weight for kind in model.selection_.kinds}


def test_an_identity_of_two_columns_is_exact():
    generator = np.random.default_rng(0)
    X = pd.DataFrame({"start": generator.uniform(0, 1000, 120), "more": generator.exponential(3.0, 120)})
    X["end"] = X.pop("start") + X["more"]
    X["start"] = X["end"] - X.pop("more")
    y = X["end"] - X["start"]
    model = BayesNormRegressor(**ALL).fit(X[:90], y[:90])
    assert weights_of(model)["linear"] > 0.9
    assert np.sqrt(np.mean((model.predict(X[90:]) - y[90:]) ** 2)) < 0.01 * y.std()
    # The error bars are as small as the errors, not a share of the targets' standard deviation.
    assert float(model.predict_dist(X[90:]).std.mean()) < 0.01 * y.std()


def test_a_kind_that_fails_gets_no_weight_and_weights_sum_to_one(regressor, classifier):
    for model in (regressor, classifier):
        weights = weights_of(model)
        assert sum(weights.values()) == pytest.approx(1)
        assert weights["trees"] > 0.5
        assert weights["linear"] == 0
        scores = {kind.kind: kind.score for kind in model.selection_.kinds}
        assert min(scores, key=scores.get) == "trees"


def test_the_mean_is_the_weighted_mean_of_kinds_and_variances_add_up(regressor):
    X = bends(50, 1)[0]
    pool = regressor.pool_
    weights = (0.3, 0.5, 0.2)
    regressor = pickle.loads(pickle.dumps(regressor))
    regressor.pool_ = replace(pool, combination=replace(pool.combination, weights=weights, spread=1.0))
    predictive = regressor.predict_dist(X)
    inputs = regressor.preprocessing_.network_inputs(regressor.preprocessing_.transform(X))
    kinds = [(regressor._by_networks(inputs).mean - pool.mean) / pool.std]
    kinds += [kind.predict(inputs).mean(0) for kind in (pool.trees, pool.linear)]
    mean = pool.mean + pool.std * sum(weight * kind for weight, kind in zip(weights, kinds, strict=True))
    torch.testing.assert_close(predictive.mean, mean)
    torch.testing.assert_close(predictive.variance, predictive.epistemic + predictive.aleatoric)
    # The disagreement of the kinds is part of the epistemic uncertainty.
    stacked = torch.stack(kinds)
    share = torch.tensor(weights, dtype=torch.float64)
    between = torch.tensordot(share, (stacked - torch.tensordot(share, stacked, 1)).square(), 1) * pool.std**2
    assert (predictive.epistemic > 0.5 * between).all()


def test_noise_follows_the_rows_and_is_capped_by_that_of_training(regressor):
    X = pd.DataFrame({"a": [-2.0, 2.0, 1e6, 0.0], "b": [0.5, 0.5, 0.5, -1e6]})
    assert regressor.selection_.error_bars != "the same for all rows"
    predictive = regressor.predict_dist(X)
    std = predictive.aleatoric[:, 0].sqrt()
    assert std[1] > 2 * std[0]
    y = bends()[1]
    assert predictive.std.max() < np.ptp(y)
    assert (predictive.mean - y.mean()).abs().max() < 2 * np.ptp(y)


def test_files_and_copies_predict_the_same(regressor, classifier, tmp_path):
    X = bends(30, 2)[0]
    for model, answer in ((regressor, "predict"), (classifier, "predict_proba")):
        model.save(tmp_path / "model")
        again = load(tmp_path / "model")
        for copy in (again, pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(getattr(copy, answer)(X), getattr(model, answer)(X))
            assert copy.selection_.kinds == model.selection_.kinds
            assert copy.selection_.error_bars == model.selection_.error_bars
        pd.testing.assert_frame_equal(again.uncertainty(X), model.uncertainty(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, pool: pool.update(weights=[0.5, 0.5, 0.5]), "pool.weights"),
        (lambda tensors, pool: pool.update(error_bars="none"), "pool.error_bars"),
        (lambda tensors, pool: pool.update(models=3), "trees.2.feature"),
        (lambda tensors, pool: pool.update(noise={"kind": "Categorical"}), "pool.noise|noise"),
        (lambda tensors, pool: pool.update(temperatures=[1.0, 1.0, 1.0]), "temperatures"),
        (lambda tensors, pool: tensors.pop("pool.trees.0.value"), "trees.0.value"),
        (lambda tensors, pool: tensors["pool.trees.0.feature"].add_(100), "trees.0.feature"),
        (lambda tensors, pool: tensors["pool.std"].neg_(), "std"),
    ],
)
def test_damaged_files_are_refused(regressor, tmp_path, change, message):
    path = tmp_path / "model"
    regressor.save(path)
    tensors, config = files.read(path)
    change(tensors, config["pool"])
    files.write(path, tensors, config)
    with pytest.raises(FileFormatError, match=message):
        load(path)


def test_held_out_predictions_are_as_good_as_those_of_new_rows(regressor):
    held_out = regressor.selection_.out_of_fold
    X, y = bends(400, 3)
    assert isinstance(held_out.predictive, RegressionPredictive)
    old = float((held_out.predictive.mean - torch.from_numpy(held_out.target)).square().mean())
    new = float(np.mean((regressor.predict(X) - y) ** 2))
    assert 0.6 < old / new < 1.7
    lower, upper = regressor.predict_interval(X, 0.9)
    assert 0.8 < np.mean((lower <= y) & (y <= upper)) < 0.97


def test_conformal_intervals_use_all_kinds():
    X, y = bends()
    model = BayesNormRegressor(**{**ALL, "folds": 4, "members": None}, conformal=True).fit(X, y)
    networks = BayesNormRegressor(**{**QUICK, "folds": 4, "members": None}, conformal=True).fit(X, y)
    new, target = bends(400, 3)
    lower, upper = model.predict_interval(new, 0.9)
    assert np.mean((lower <= target) & (target <= upper)) > 0.85
    assert np.median(upper - lower) < 0.7 * np.median(np.subtract(*networks.predict_interval(new, 0.9)[::-1]))


def test_several_targets_weights_and_groups():
    X, y = bends()
    groups = np.arange(len(X)) // 4
    weight = np.where(np.arange(len(X)) < 5, 0.0, 1.0)
    model = BayesNormRegressor(**ALL).fit(X, np.stack([y, 1000 * X["b"]], 1), sample_weight=weight, groups=groups)
    assert model.predict(X).shape == (200, 2)
    assert np.corrcoef(model.predict(X)[:, 1], X["b"])[0, 1] > 0.9
    assert 5 < model.predict_dist(X).std[:, 1].mean() / model.predict_dist(X).std[:, 0].mean() < 50


def test_fixed_noise_is_kept():
    model = BayesNormRegressor(**ALL, precision=4.0, heteroscedastic=False).fit(*bends())
    torch.testing.assert_close(model.predict_dist(bends()[0]).scale, torch.full((16, 200, 1), 0.5, dtype=torch.float64))


def test_what_networks_do_alone_still_works_on_the_whole(regressor):
    X, _ = bends(60, 4)
    assert regressor.drift(X).network is not None
    adapted = regressor.adapt(X)
    assert adapted.pool_ is regressor.pool_
    result = regressor.explain_uncertainty(X[:5])
    np.testing.assert_allclose(result.total, regressor.predict_dist(X[:5]).epistemic[:, 0], rtol=1e-4)


def test_many_rows_are_predicted_as_few(regressor):
    X, _ = bends(1_500, 5)
    whole, part = regressor.predict_dist(X), regressor.predict_dist(X[:20])
    torch.testing.assert_close(whole.mean[:20], part.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole.std[:20], part.std, rtol=1e-3, atol=1e-5)


def test_networks_only_has_no_other_members():
    X, y = mixed_rows()
    model = BayesNormRegressor(**QUICK).fit(X, y)
    assert model.pool_ is None
    assert model.selection_.kinds == ()
    expected = model.posterior_.predict(model._inputs(model.preprocessing_.transform(X)), samples=8, seed=model.seed_)
    torch.testing.assert_close(model.predict_dist(X).mean, expected.mean)
