"""The intervals of the command line are those of `predict_interval`: as wide as held-out rows needed."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

import pandas as pd

from bayesnorm import tabular
from bayesnorm.cli.file_columns import convert_columns
from bayesnorm.cli.tables import open_table, read_table
from bayesnorm.tabular.estimator import TabularEstimator


@pytest.fixture
def model_and_inputs(regression_run):
    inputs, _ = convert_columns(read_table(open_table(regression_run.data)), regression_run.data)
    return tabular.load(regression_run.run / "model.bayesnorm"), inputs.drop(columns="price")


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_predict_gives_the_estimators_intervals(bayesnorm, regression_run, model_and_inputs, tmp_path, level):
    out = tmp_path / "out.csv"
    options = ("--out", out, "--level", level, "--digits", 17)
    assert bayesnorm("predict", regression_run.run, regression_run.data, *options).code == 0
    model, inputs = model_and_inputs
    lower, upper = model.predict_interval(inputs, level)
    found = pd.read_csv(out)
    np.testing.assert_allclose(found["lower"], lower, rtol=1e-9)
    np.testing.assert_allclose(found["upper"], upper, rtol=1e-9)
    own = model.predict_dist(inputs).interval(level)[0][:, 0].numpy()
    assert np.abs(own - lower).max() > 1e-3 * np.std(lower)  # else nothing was tested


def test_the_report_judges_these_intervals(regression_run, model_and_inputs):
    kept = pd.read_csv(regression_run.run / "test_predictions.csv")
    test = json.loads((regression_run.run / "report.json").read_text())["test"]
    facts = json.loads((regression_run.run / "run.json").read_text())
    model, inputs = model_and_inputs
    lower, upper = model.predict_interval(inputs.loc[kept["row"]], 0.9)
    for name, values in (("lower", lower), ("upper", upper)):
        np.testing.assert_allclose(test[name], values, rtol=1e-9)
        # Written with four digits of the uncertainty.
        np.testing.assert_array_less(np.abs(kept[name] - values), 0.001 * kept["std"])
    inside = (lower <= kept["y"]) & (kept["y"] <= upper)
    assert facts["scores"]["coverage"] == pytest.approx(inside.mean())
    # The picture of all levels has the same intervals.
    np.testing.assert_array_equal(np.abs(np.array(test["pit"]) - 0.5) <= 0.45, inside)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_a_row_goes_through_the_network_once(bayesnorm, request, monkeypatch, tmp_path, kind):
    fitted = request.getfixturevalue(f"{kind}_run")
    seen = []
    real = TabularEstimator._predictive_of
    monkeypatch.setattr(TabularEstimator, "_predictive_of", lambda self, x: seen.append(len(x)) or real(self, x))
    assert bayesnorm("predict", fitted.run, fitted.data, "--out", tmp_path / "out.csv").code == 0
    assert seen == [80]
