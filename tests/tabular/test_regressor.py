"""Regression on tables."""

import numpy as np
import pandas as pd
import pytest
import torch

import bayesnorm as bn
from bayesnorm.errors import BayesNormWarning, InputError
from bayesnorm.metrics import coverage, crps
from bayesnorm.posterior import effective_batch_size
from bayesnorm.tabular import BayesNormRegressor
from bayesnorm.tabular.search_results import LARGEST, SMALLEST
from bayesnorm.tabular.trainer import Trainer

from .conftest import line_model, mixed_model


def test_a_mixed_table_is_learned(mixed, quick):
    X, y = mixed
    quick |= {"max_epochs": 80, "effective_batch_size": "cross-validated"}
    model = BayesNormRegressor(**quick).fit(X[:70], y[:70])
    assert model.score(X[70:], y[70:]) > 0.7
    mean, std = model.predict(X[70:], return_std=True)
    lower, upper = model.predict_interval(X[70:], 0.9)
    assert mean.shape == std.shape == lower.shape == upper.shape == (20,)
    assert (lower < mean).all()
    assert (mean < upper).all()
    predictive = model.predict_dist(X[70:])
    assert isinstance(predictive, bn.RegressionPredictive)
    np.testing.assert_array_equal(predictive.mean[:, 0], mean)
    np.testing.assert_allclose(predictive.std[:, 0], std)
    assert list(model.feature_names_in_) == ["size", "town", "grade", "new"]
    assert model.n_features_in_ == 4


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("mcbn", "batchnorm"),
        ("gaussian", "batchnorm"),
        ("stochastic", "batchnorm"),
        ("dropout", "dropout"),
        ("ensemble", "deterministic"),
    ],
)
def test_every_method_has_uncertainty_and_noise(mixed, method, kind):
    X, _ = mixed
    model = mixed_model(method)
    assert [member.kind for member in model.posterior_.members] == [kind] * 2
    uncertainty = model.uncertainty(X)
    assert list(uncertainty) == ["epistemic_std", "aleatoric_std", "unusual", "reason", "unseen_columns"]
    assert (uncertainty["epistemic_std"] > 0).all()
    assert uncertainty["aleatoric_std"].std() > 1e-6
    variance = model.predict(X, return_std=True)[1] ** 2
    np.testing.assert_allclose(uncertainty["epistemic_std"] ** 2 + uncertainty["aleatoric_std"] ** 2, variance)
    assert (model.selection_.effective_batch_size is not None) == (kind == "batchnorm")
    assert set(model.selection_.noise) - {"df", "floor"} == {"scale"}


def test_noise_follows_the_input():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(400, 1))
    noise = np.where(X[:, 0] > 0, 1.0, 0.1)
    y = 100 + 2 * X[:, 0] + noise * generator.normal(size=400)
    model = BayesNormRegressor(
        encoding="plain",
        hidden=(20,),
        dropout_rate=0.0,
        weight_decay=0.01,
        learning_rate=1e-2,
        max_epochs=40,
        folds=2,
        members=2,
        random_state=0,
    ).fit(X, y)
    result = model.uncertainty(np.array([[-0.7], [0.7]]))["aleatoric_std"]
    assert result[0] < 0.35
    assert result[1] == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize(("heteroscedastic", "unit"), [(False, 1e6), (True, 1e-9)])
def test_units_are_the_targets_own(line, quick, heteroscedastic, unit):
    X, y = line
    quick["heteroscedastic"] = heteroscedastic
    model = line_model() if heteroscedastic else BayesNormRegressor(**quick).fit(X, y)
    other = BayesNormRegressor(**quick).fit(X, unit * (1e3 + y))
    np.testing.assert_allclose(other.predict(X) / unit - 1e3, model.predict(X), atol=1e-4)
    stds = [estimator.predict(X, return_std=True)[1] for estimator in (other, model)]
    np.testing.assert_allclose(stds[0] / unit, stds[1], rtol=1e-3)
    lower, expected = (estimator._conformal_interval(X, 0.8)[0] for estimator in (other, model))
    np.testing.assert_allclose(lower / unit - 1e3, expected, rtol=1e-3, atol=1e-3)
    if heteroscedastic:
        assert other.selection_.noise["scale"] == pytest.approx(model.selection_.noise["scale"], rel=1e-3)
    else:
        ratio = other.selection_.noise["precision"] / model.selection_.noise["precision"]
        assert ratio == pytest.approx(unit**-2, rel=1e-3)
    assert other.selection_.chosen.score / model.selection_.chosen.score == pytest.approx(unit, rel=1e-3)


def test_several_outputs_of_different_size(line, quick):
    X, y = line
    both = np.stack([y, -1000 * X[:, 1]], axis=1)
    quick["max_epochs"] = 50
    model = BayesNormRegressor(**quick).fit(X, both)
    assert model.predict(X).shape == (80, 2)
    assert model.n_outputs_ == 2
    assert len(model.selection_.noise["scale"]) == 2
    assert model.score(X, both) > 0.8
    lower, upper = model.predict_interval(X, 0.5)
    assert lower.shape == (80, 2)
    assert (lower < upper).all()
    assert (upper - lower)[:, 1].mean() > 10 * (upper - lower)[:, 0].mean()
    assert list(model.uncertainty(X))[:4] == [
        "epistemic_std_0",
        "epistemic_std_1",
        "aleatoric_std_0",
        "aleatoric_std_1",
    ]


def test_one_column_of_targets_comes_back_as_one(line, quick):
    X, y = line
    model = BayesNormRegressor(**quick).fit(X, y[:, None])
    assert model.predict(X).shape == (80, 1)
    np.testing.assert_array_equal(model.predict(X)[:, 0], line_model().predict(X))


def test_same_random_state_same_result_and_global_generators_are_left_alone(line, quick):
    X, y = line
    torch.manual_seed(1)
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = line_model().predict(X), BayesNormRegressor(**quick).fit(X, y).predict(X)
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002
    other = BayesNormRegressor(**{**quick, "random_state": 1}).fit(X, y).predict(X)
    assert not np.array_equal(first, other)


def test_weights_decide_whom_to_follow(quick):
    X = np.linspace(-1, 1, 60)[:, None].repeat(2, axis=0)
    y = np.where(np.arange(120) % 2 == 0, 1.0, -1.0)  # two targets at every input
    quick |= {"max_epochs": 40, "heteroscedastic": False}
    weights = np.where(y > 0, 9.0, 1.0)
    plain = BayesNormRegressor(**quick).fit(X, y)
    leaning = BayesNormRegressor(**quick).fit(X, y, sample_weight=weights)
    assert abs(plain.predict(X).mean()) < 0.3
    assert leaning.predict(X).mean() == pytest.approx(0.8, abs=0.25)  # (9 - 1) / 10
    # Of the weighted targets the variance is 4 * .9 * .1; the noise is chosen on rows as often as they weigh.
    assert 1 / leaning.selection_.noise["precision"] == pytest.approx(0.36, rel=0.6)
    assert leaning.selection_.out_of_fold.weight.mean() == pytest.approx(1.0)


def test_rows_without_weight_are_left_out(line, quick):
    X, y = line
    odd = np.concatenate([X, X[:10]]), np.concatenate([y, y[:10] + 1000])
    weights = np.concatenate([np.full(80, 2.0), np.zeros(10)])
    with_zeros = BayesNormRegressor(**quick).fit(*odd, sample_weight=weights)
    np.testing.assert_array_equal(with_zeros.predict(X), line_model().predict(X))
    assert with_zeros.selection_.out_of_fold.rows.max() == 79


def test_rows_unlike_training_are_marked(line):
    X, model = line[0], line_model()
    assert model.uncertainty(X)["unusual"].mean() < 0.05
    far = model.uncertainty(np.array([[10.0, 0.0], [0.0, 1e30], [0.0, 0.0]]))
    assert far["unusual"].tolist() == [True, True, False]


def test_new_categories_are_predicted_and_marked(mixed):
    X, model = mixed[0], mixed_model()
    later = X.iloc[[3, 4]].assign(town=["yew", X["town"].iloc[4]])
    uncertainty = model.uncertainty(later)
    assert uncertainty.index.tolist() == [3, 4]
    assert uncertainty["unseen_columns"].tolist() == ["town", ""]
    assert uncertainty["unusual"].tolist()[0]
    assert np.isfinite(model.predict(later)).all()


def test_what_was_chosen_can_be_looked_at(line, quick):
    X, y = line
    quick |= {"effective_batch_size": "cross-validated", "weight_decay": [1e-2, 3e-1], "batch_size": [4, 8]}
    selection = BayesNormRegressor(**quick).fit(X, y).selection_
    table = selection.table()
    assert len(table) == len(selection.settings) == 4
    assert table["score"].is_monotonic_increasing
    assert selection.chosen.score == table["score"][0]
    assert {(s.batch_size, s.weight_decay) for s in selection.settings} == {(4, 0.01), (4, 0.3), (8, 0.01), (8, 0.3)}
    assert selection.score == "crps"
    assert selection.folds == 2
    assert selection.chosen.batch_size * SMALLEST <= selection.effective_batch_size
    assert selection.effective_batch_size <= selection.chosen.batch_size * LARGEST
    held_out = selection.out_of_fold
    # the same networks on the same rows: ranked at the best noise, without uncertainty about the network
    assert float(crps(held_out.predictive, held_out.target)) == pytest.approx(selection.chosen.score, rel=0.1)
    assert 0.5 < float(coverage(held_out.predictive, held_out.target, 0.9)) <= 1
    with pytest.raises(AttributeError):
        selection.folds = 3


def test_given_values_are_taken(line, quick):
    X, y = line
    quick |= {"epochs": 7, "batch_size": 16, "dropout_rate": 0.0, "effective_batch_size": 50.0}
    quick |= {"precision": 4.0, "heteroscedastic": False}
    model = BayesNormRegressor(**quick).fit(X, y)
    chosen = model.selection_.chosen
    assert (chosen.epochs, chosen.batch_size, chosen.weight_decay, chosen.encoding) == (7, 16, 0.01, "plain")
    assert model.selection_.noise == {"precision": pytest.approx(4.0)}
    assert model.selection_.effective_batch_size == 50.0
    for member in model.posterior_.members:
        assert (member.batch_size, member.fitted_batch_size, member.rows) == (50.0, 16, 40)
    np.testing.assert_allclose(model.uncertainty(X)["aleatoric_std"], 0.5)


def test_the_training_batch_size_and_the_bound_as_effective_ones(line, quick):
    X, y = line
    assert effective_batch_size(line_model().posterior_) == line_model().selection_.chosen.batch_size
    quick |= {"batch_size": 8, "epochs": 5, "effective_batch_size": "elbo"}
    model = BayesNormRegressor(**quick).fit(X, y)
    assert model.selection_.effective_batch_size in (8, 16, 32, 64, 128, 256, 512, 1024)
    assert effective_batch_size(model.posterior_) == model.selection_.effective_batch_size


def test_dropout_rates(line, quick):
    X, y = line
    quick |= {"epochs": 5}
    model = BayesNormRegressor(**quick, method="dropout", dropout_rate=[0.05, 0.3]).fit(X, y)
    assert [setting.dropout_rate for setting in model.selection_.settings] == [0.05, 0.3]
    for member in model.posterior_.members:
        assert set(member.rates.values()) == {model.selection_.chosen.dropout_rate}


def test_one_setting_when_it_is_to_be_fast(line, quick):
    X, y = line
    quick |= {"encoding": None, "weight_decay": None, "members": None, "epochs": 3}
    fast, thorough = (BayesNormRegressor(**quick, fast=fast).fit(X, y) for fast in (True, False))
    assert [setting.encoding for setting in fast.selection_.settings] == ["bins 8"]
    assert [setting.encoding for setting in thorough.selection_.settings] == ["plain", "bins 8"]
    assert [len(model.posterior_.members) for model in (fast, thorough)] == [3, 4]


def test_single_precision_tables_are_taken(line, quick):
    X, y = line
    X, y = X.astype(np.float32), y.astype(np.float32)
    predictions = BayesNormRegressor(**quick).fit(X, y).predict(X)
    assert predictions.dtype == np.float64
    np.testing.assert_allclose(predictions, line_model().predict(line[0]), atol=1e-2)


def test_more_columns_than_rows(quick):
    X = np.random.default_rng(0).normal(size=(30, 60))
    with pytest.warns(BayesNormWarning, match="of the 60 columns"):
        model = BayesNormRegressor(**quick).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
    assert model.uncertainty(X)["unusual"].mean() < 0.2


def test_progress_is_shown_on_request(line, quick, capsys):
    pytest.importorskip("rich")
    BayesNormRegressor(**quick, verbose=1).fit(*line)
    shown = capsys.readouterr()
    assert "2 folds" in shown.err
    assert "20 of 40 rows" in shown.err
    assert shown.out == ""
    BayesNormRegressor(**quick | {"epochs": 1, "members": 1}).fit(*line)
    assert capsys.readouterr().err == ""


def test_several_cores_give_the_same_result(line, quick):
    X, y = line
    quick |= {"batch_size": [4, 8], "verbose": 1}
    alone = BayesNormRegressor(**quick).fit(X, y)
    before = torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        together = BayesNormRegressor(**quick).fit(X, y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.get_rng_state(), before)
    scores = [[setting.score for setting in model.selection_.settings] for model in (alone, together)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-3)  # but for rounding, which training makes larger
    np.testing.assert_allclose(together.predict(X), alone.predict(X), rtol=1e-3)


def test_frames_with_other_columns_are_refused(mixed):
    X, model = mixed[0], mixed_model()
    with pytest.raises(InputError, match="Feature names must be in the same order"):
        model.predict(X[X.columns[::-1]])
    with pytest.raises(InputError, match=r"(?s)yet now missing.*town"):
        model.predict(X.drop(columns="town"))
    with pytest.raises(InputError, match=r"(?s)unseen at fit time.*extra"):
        model.predict(X.assign(extra=1))
    with pytest.raises(InputError, match="column 'size' contains numbers in training, but 'big' in row 0"):
        model.predict(X.assign(size=pd.Series(["big"] * len(X), dtype=object)))


def test_an_interrupted_fit_keeps_what_chose_the_setting(line, quick, monkeypatch):
    X, y = line
    trained, calls = Trainer.train, []

    def interrupted(self, *arguments, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return trained(self, *arguments, **options)

    monkeypatch.setattr(Trainer, "train", interrupted)
    several = quick | {"encoding": ["plain", "bins 4"], "folds": 4, "members": 6}
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        BayesNormRegressor(**several, interruptible=True).fit(X, y)  # nothing was chosen yet
    calls.clear()
    one = several | {"encoding": "plain", "weight_decay": [0.01, 0.1]}
    with pytest.raises(KeyboardInterrupt):
        BayesNormRegressor(**one).fit(X, y)
    calls.clear()
    with pytest.warns(BayesNormWarning, match=r"Training was interrupted\. The model has 4 of 6 networks"):
        plain = BayesNormRegressor(**one, interruptible=True).fit(X, y)
    lower, upper = plain.predict_interval(X, 0.9)
    assert ((lower < y) & (y < upper)).mean() > 0.6
    assert plain.score(X, y) > 0.5
