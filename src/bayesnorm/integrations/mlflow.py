"""Fitted table estimators as MLflow models: named columns, and the level of the intervals as a parameter; no pickle."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import mlflow.pyfunc
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

from ..errors import BayesNormError
from ..tabular import load, prediction_frame

# MLflow's types of columns.
KINDS = {"NumericColumn": "double", "CategoricalColumn": "string", "DateColumn": "datetime"}

# File of the estimator in a saved model, and the level of intervals unless a request asks for another.
FILE, LEVEL = "model.bayesnorm", 0.9


class EstimatorModel:
    """What MLflow calls to predict: data frames with the columns of training, or lists of dictionaries."""

    def __init__(self, path: str) -> None:
        self.estimator = load(Path(path))

    def predict(self, table: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a data frame with the prediction of each row; `params["level"]` is the level of the intervals."""
        predictive, uncertainty = self.estimator.predict_with_uncertainty(table)
        level = (params or {}).get("level", LEVEL)
        return prediction_frame(self.estimator, table, predictive, uncertainty, level).drop(columns="row")


_load_pyfunc = EstimatorModel  # the name that MLflow looks for in a loader module


def save_model(estimator: Any, path: str | Path, **options: Any) -> None:
    """Write an estimator as a folder that `mlflow models serve` and `mlflow.pyfunc.load_model` read.

    Args:
        estimator: A fitted `BayesNormRegressor` with one target, or a `BayesNormClassifier`.
        path: The folder to create.
        options: Options of `mlflow.pyfunc.save_model`.
    """
    _store(mlflow.pyfunc.save_model, estimator, path=str(path), **options)


def log_model(estimator: Any, name: str = "model", **options: Any) -> Any:
    """Log an estimator to the active MLflow run, and return MLflow's description of the model.

    Args:
        estimator: A fitted estimator; see `save_model`.
        name: The name of the model.
        options: Options of `mlflow.pyfunc.log_model`, such as `registered_model_name`.
    """
    return _store(mlflow.pyfunc.log_model, estimator, name=name, **options)


def _store(store: Any, estimator: Any, **options: Any) -> Any:
    if getattr(estimator, "n_outputs_", 1) > 1:
        raise BayesNormError(f"The estimator has {estimator.n_outputs_} targets. Fit and log one for each target.")
    columns = [ColSpec(KINDS[type(column).__name__], column.name) for column in estimator.preprocessing_.columns]
    signature = ModelSignature(Schema(columns), params=ParamSchema([ParamSpec("level", "double", LEVEL)]))
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / FILE)
        return store(data_path=f"{folder}/{FILE}", loader_module=__name__, signature=signature, **options)
