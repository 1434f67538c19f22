"""A table estimator as an MLflow model, with the real package: `make test-integrations`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("mlflow", reason="make test-integrations runs this test")

import mlflow

from bayesnorm.errors import BayesNormError
from bayesnorm.integrations.mlflow import log_model, save_model
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor

SMALL = {"hidden": (8,), "weight_decay": 1e-3, "batch_size": 8, "epochs": 2, "folds": 2, "random_state": 0}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    chance = np.random.default_rng(0)
    x = chance.normal(size=60)
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(chance.integers(300, size=60), "D")
    return pd.DataFrame({"x": np.where(x > 1.5, np.nan, x), "colour": chance.choice(["red", "blue"], 60), "day": days})


def test_a_regression_is_saved_and_predicts_as_before(table, tmp_path):
    estimator = BayesNormRegressor(**SMALL).fit(table, np.arange(60.0))
    save_model(estimator, tmp_path / "model")
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".pkl", ".pickle")]
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert [column.name for column in loaded.metadata.get_input_schema()] == ["x", "colour", "day"]
    frame = loaded.predict(table[["day", "x", "colour"]])  # in any order
    np.testing.assert_allclose(frame["mean"], estimator.predict(table))
    for level in (0.9, 0.5):
        lower, upper = estimator.predict_interval(table, level)
        frame = loaded.predict(table, params={"level": level})
        np.testing.assert_allclose(frame[["lower", "upper"]].to_numpy().T, (lower, upper))
    assert {"epistemic_std", "aleatoric_std", "unusual", "reason"} <= {*frame}
    with pytest.raises(mlflow.MlflowException, match="colour"):
        loaded.predict(table.drop(columns="colour"))


def test_a_classifier_is_logged_in_a_run(table, tmp_path):
    estimator = BayesNormClassifier(**SMALL).fit(table, np.arange(60) % 3)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("test", f"file://{tmp_path}/artifacts")
    mlflow.set_experiment("test")
    with mlflow.start_run():
        info = log_model(estimator)
    frame = mlflow.pyfunc.load_model(info.model_uri).predict(table)
    np.testing.assert_allclose(frame[["p(0)", "p(1)", "p(2)"]], estimator.predict_proba(table), atol=1e-12)


def test_several_targets_are_refused(table, tmp_path):
    estimator = BayesNormRegressor(**SMALL).fit(table[["x"]], np.ones((60, 2)) * np.arange(60.0)[:, None])
    with pytest.raises(BayesNormError, match="2 targets"):
        save_model(estimator, tmp_path / "model")
