"""Why an estimator doubts a row: on rows where it is known which column is to blame."""

import numpy as np
import pandas as pd
import pytest
import torch

from bayesnorm.errors import InputError
from bayesnorm.predictive import GaussianPredictive
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, load
from bayesnorm.tabular.explaining import explain_uncertainty, usual_row
from bayesnorm.tabular.preprocessing import Preprocessing
from bayesnorm.tabular.training_columns import TrainingColumns

from .conftest import mixed_model

ENSEMBLE = {
    "method": "ensemble",
    "networks_only": True,
    "hidden": (20,),
    "epochs": 40,
    "weight_decay": 1e-4,
    "batch_size": 16,
    "folds": 2,
    "random_state": 0,
}


def world(rows, seed=0):
    """A target that depends on a, on b, which has a hole from 0 to 5, and on the town, but not on `useless`."""
    generator = np.random.default_rng(seed)
    b = np.where(generator.random(rows) < 0.7, generator.uniform(-4, 0, rows), generator.uniform(5, 6, rows))
    X = pd.DataFrame({"a": generator.uniform(-2, 2, rows), "b": b, "useless": generator.normal(size=rows)})
    X["town"] = generator.choice(["Ede", "Oss"], rows, p=[0.6, 0.4])
    return X, np.sin(2 * X.a) + np.sin(X.b) + 0.5 * (X.town == "Oss") + 0.05 * generator.normal(size=rows)


USUAL = pd.DataFrame({"a": [0.2, -0.5, 1.0], "b": [-1.0, -2.0, -3.0], "useless": [0.0, 1.0, -1.0], "town": "Ede"})
"""Rows that lie among those of training."""


@pytest.fixture(scope="module")
def trained():
    return BayesNormRegressor(**ENSEMBLE).fit(*world(240))


def gaussian_process(X, lengths):
    """A posterior in closed form: uncertainty is large only far from training rows, by the lengths of features."""
    preprocessing = Preprocessing.fit(X)
    x = preprocessing.transform(X) / lengths

    def kernel(one, other):
        return np.exp(-0.5 * ((one[:, None] - other[None]) ** 2).sum(2))

    gram = kernel(x, x) + 0.01 * np.eye(len(x))

    def predict(features):
        across = kernel(features / lengths, x)
        variance = torch.from_numpy(1 - (across * np.linalg.solve(gram, across.T).T).sum(1))[:, None]
        return GaussianPredictive(torch.zeros_like(variance), variance, torch.full_like(variance, 0.01))

    return preprocessing, predict


def test_rows_in_a_hole_and_far_outside_of_an_exact_posterior():
    X = world(150)[0].drop(columns="town")
    # In features' units; that of `useless` is so long that nothing depends on it.
    preprocessing, predict = gaussian_process(X, np.array([0.7, 0.4, 1e6]))
    baseline = usual_row(preprocessing, TrainingColumns.fit(preprocessing.read(X).values))
    usual = USUAL.drop(columns="town")
    rows = pd.concat([usual.assign(b=2.5), usual.assign(a=9.0), usual.assign(useless=50.0)], ignore_index=True)
    result = explain_uncertainty(predict, preprocessing, preprocessing.read(rows), baseline)
    assert result.total[:6].min() > 0.5
    assert result.shares["b"][:3].min() > 0.8
    assert result.shares["a"][3:6].min() > 0.8
    assert result.contributions["useless"].abs().max() < 1e-8
    assert [line.split()[0] for line in result.words()[:6]] == ["b"] * 3 + ["a"] * 3
    assert result.total[6:].max() < 0.1


def test_contributions_sum_to_the_rows_uncertainty_less_the_usual_rows(trained):
    X = world(50, seed=1)[0]
    result = trained.explain_uncertainty(X)
    epistemic = trained.predict_dist(X).epistemic[:, 0].numpy()
    # Many rows at a time are predicted in single precision.
    np.testing.assert_allclose(result.total, epistemic, rtol=1e-4)
    np.testing.assert_allclose(result.contributions.sum(axis=1) + result.baseline, epistemic, rtol=1e-4)
    assert result.baseline == pytest.approx(float(trained.predict_dist(result.baseline_row).epistemic[0, 0]), rel=1e-9)
    assert result.contributions.index.equals(X.index)
    assert list(result.contributions.columns) == list(X.columns)


def test_a_number_far_beyond_and_a_town_never_seen_come_first(trained):
    rows = pd.concat(
        [USUAL.assign(a=8.0), USUAL.assign(b=-30.0), USUAL.assign(town="Ulft", a=0.2, b=-1.0, useless=0.0)]
    )
    result = trained.explain_uncertainty(rows)
    first = result.top(1)
    assert first["column"].tolist() == ["a"] * 3 + ["b"] * 3 + ["town"] * 3
    assert first["row"].tolist() == rows.index.tolist()
    assert first["share"][:6].min() > 0.5
    assert first["contribution"].tolist() == [
        result.contributions.iloc[at][name] for at, name in enumerate(first["column"])
    ]


def test_a_column_as_in_the_usual_row_adds_nothing(trained):
    usual = trained.explain_uncertainty(USUAL).baseline_row
    assert usual.iloc[0].to_dict() == {
        **{name: world(240)[0][name].median() for name in USUAL.columns[:3]},
        "town": "Ede",
    }
    result = trained.explain_uncertainty(pd.concat([usual, usual.assign(a=8.0)]))
    np.testing.assert_allclose(result.contributions.iloc[0], 0, atol=1e-12 * result.baseline)
    np.testing.assert_allclose(result.contributions.iloc[1, 1:].astype(float), 0, atol=1e-12 * result.total.iloc[1])
    assert result.words() == ["", f"a {100 * (1 - result.baseline / result.total.iloc[1]):.0f} %"]


def test_shares_are_parts_of_all_that_makes_for_uncertainty(trained):
    result = trained.explain_uncertainty(world(50, seed=1)[0])
    added = result.contributions.clip(lower=0)
    assert (result.contributions < 0).any(axis=None)
    np.testing.assert_allclose(
        result.shares.clip(lower=0).sum(axis=1), 1 - result.baseline / (result.baseline + added.sum(axis=1)), atol=1e-12
    )
    assert ((result.shares < 0) == (result.contributions < 0)).all(axis=None)


def test_the_most_common_reasons(trained):
    rows = pd.concat([USUAL.assign(a=8.0), USUAL.assign(a=-9.0), USUAL.assign(b=-30.0)])
    result = trained.explain_uncertainty(rows)
    overall = result.overall()
    assert overall.index[:2].tolist() == ["a", "b"]
    np.testing.assert_allclose(overall["first"], [6 / 9, 3 / 9, 0, 0])
    np.testing.assert_allclose(overall["contribution"], result.contributions.mean()[overall.index])
    assert len(result.top(2)) <= 2 * len(rows)


def test_another_baseline(trained):
    """Against a row that is uncertain for the same reason, nothing is left to explain."""
    far = USUAL.iloc[[0]].assign(a=8.0)
    result = trained.explain_uncertainty(far, baseline=far.assign(town="Oss"))
    assert result.baseline == pytest.approx(
        float(trained.predict_dist(far.assign(town="Oss")).epistemic[0, 0]), rel=1e-9
    )
    np.testing.assert_allclose(result.contributions[["a", "b", "useless"]], 0, atol=1e-12 * result.baseline)
    with pytest.raises(InputError, match=r"baseline must be a table with one row, got 3 rows"):
        trained.explain_uncertainty(far, baseline=USUAL)


def test_classes_have_mutual_information_to_explain():
    X, y = world(160)
    model = BayesNormClassifier(**ENSEMBLE).fit(X, np.where(y > 0, "high", "low"))
    result = model.explain_uncertainty(X[:20])
    expected = model.uncertainty(X[:20])["mutual_information"]
    np.testing.assert_allclose(result.total, expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(result.contributions.sum(axis=1), expected - result.baseline, atol=1e-10)
    assert result.contributions.abs().to_numpy().max() > 1e-4


@pytest.mark.parametrize("method", ["mcbn", "gaussian", "stochastic", "dropout", "ensemble"])
def test_contributions_of_every_method_sum_up(mixed, method):
    X, model = mixed[0], mixed_model(method)
    result = model.explain_uncertainty(X[:5])
    epistemic = model.predict_dist(X[:5]).epistemic[:, 0].numpy()
    np.testing.assert_allclose(result.contributions.sum(axis=1), epistemic - result.baseline, rtol=1e-6, atol=1e-12)


def test_many_columns_have_drawn_orders(quick):
    X = np.random.default_rng(0).normal(size=(60, 12))
    model = BayesNormRegressor(**quick).fit(X, X[:, 0] + X[:, 1] ** 2)
    result = model.explain_uncertainty(X[:5], pairs=2)
    epistemic = model.predict_dist(X[:5]).epistemic[:, 0].numpy()
    np.testing.assert_allclose(result.contributions.sum(axis=1), epistemic - result.baseline, rtol=1e-6, atol=1e-12)
    assert result.contributions.equals(model.explain_uncertainty(X[:5], pairs=2).contributions)
    assert not result.contributions.equals(model.explain_uncertainty(X[:5], pairs=3).contributions)


def test_several_outputs(line, quick):
    X, y = line
    model = BayesNormRegressor(**quick).fit(X, np.stack([y, -10 * y**2], 1))
    epistemic = model.predict_dist(X[:4]).epistemic.numpy()
    for output in (0, 1):
        np.testing.assert_allclose(
            model.explain_uncertainty(X[:4], output=output).total, epistemic[:, output], rtol=1e-9
        )
    with pytest.raises(InputError, match="output must be a whole number from 0 to 1, got 2"):
        model.explain_uncertainty(X, output=2)
    with pytest.raises(InputError, match="pairs must be a whole number of at least 1, got 0"):
        model.explain_uncertainty(X, pairs=0)


def test_a_saved_estimator_explains_the_same(mixed, tmp_path):
    X, model = mixed[0], mixed_model()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").explain_uncertainty(X[:5])
    np.testing.assert_allclose(
        again.contributions, model.explain_uncertainty(X[:5]).contributions, rtol=1e-6, atol=1e-10
    )


def test_the_usual_row_of_every_kind_of_column():
    day = np.datetime64("2024-03-01", "s")
    X = pd.DataFrame(
        {
            "number": [1.5, 2.0, 9.0, np.nan, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 11.0],
            "switch": [0, 1] * 6,
            "town": ["b", "a", "b"] * 4,
            "mostly gone": [None, None, "x"] * 4,
            "day": day + np.arange(12) * 86_400,
            "never": [np.nan] * 12,
            "same": [3.0] * 12,
        }
    )
    preprocessing = Preprocessing.fit(X)
    training = TrainingColumns.fit(preprocessing.read(X).values)
    usual = usual_row(preprocessing, training).iloc[0]
    assert usual["number"] == 6.0
    assert usual["switch"] == 0.0  # of two values one, not what lies half way between them
    assert (usual["town"], usual["mostly gone"], usual["same"]) == ("b", None, 3.0)
    assert usual["day"] == pd.Timestamp("2024-03-06T12:00")
    assert np.isnan(usual["never"])


def test_columns_that_give_no_feature_add_nothing(quick):
    generator = np.random.default_rng(0)
    X = pd.DataFrame({"same": 1.0, "x": generator.normal(size=40), "gone": np.nan})
    model = BayesNormRegressor(**quick).fit(X, X["x"])
    result = model.explain_uncertainty(X[:3].assign(same=2.0))
    assert result.contributions[["same", "gone"]].eq(0).all(axis=None)
    np.testing.assert_allclose(result.contributions["x"] + result.baseline, result.total, rtol=1e-9)
    alone = BayesNormRegressor(**quick).fit(X[["same"]], X["x"])
    assert alone.explain_uncertainty(X[["same"]][:2]).contributions.to_numpy().tolist() == [[0.0], [0.0]]


def test_of_many_columns_the_important_ones_have_their_own_contribution(quick):
    """With more than 100 columns, the others share one contribution equally, and contributions still add up."""
    X = np.random.default_rng(0).normal(size=(120, 110))
    model = BayesNormRegressor(**quick).fit(X, X[:, 0])
    explanation = model.explain_uncertainty(X[:2] + 1, pairs=1)
    values = explanation.contributions.to_numpy()
    np.testing.assert_allclose(values.sum(1), explanation.total - explanation.baseline, rtol=1e-6, atol=1e-9)
    assert len(np.unique(values[0])) == 100
    assert not model.drift(X).columns[109].moved
