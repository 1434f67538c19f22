"""The intervals of `predict` and of reports are those of `predict_interval`, with and without `fit --conformal`."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

import pandas as pd

from bayesnorm import tabular
from bayesnorm.cli.file_columns import convert_columns
from bayesnorm.cli.stored_report import report_from_values
from bayesnorm.cli.tables import open_table, read_table
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.tabular.estimator import TabularEstimator

from .conftest import _fit, houses


@pytest.fixture(scope="module")
def guaranteed(tmp_path_factory):
    return _fit(tmp_path_factory.mktemp("conformal"), houses(80), "--target", "price", "--conformal", "--members", "5")


@pytest.fixture(params=["regression_run", "guaranteed"])
def fitted(request):
    """A run with calibrated intervals, and one with conformal intervals."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def model_and_inputs(fitted):
    inputs, _ = convert_columns(read_table(open_table(fitted.data)), fitted.data)
    return tabular.load(fitted.run / "model.bayesnorm"), inputs.drop(columns="price")


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_predict_gives_the_estimators_intervals(bayesnorm, fitted, model_and_inputs, tmp_path, level):
    options = ("--out", tmp_path / "out.csv", "--level", level, "--digits", 17)
    assert bayesnorm("predict", fitted.run, fitted.data, *options).code == 0
    model, inputs = model_and_inputs
    lower, upper = model.predict_interval(inputs, level)
    table = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(table["lower"], lower, rtol=1e-9)
    np.testing.assert_allclose(table["upper"], upper, rtol=1e-9)
    predictive = model.predict_dist(inputs)
    other = (model.interval_of if model.conformal else RegressionPredictive.interval)(predictive, level)[0][
        :, 0
    ].numpy()
    assert np.abs(other - lower).max() > (1e-2 if model.conformal else 1e-3) * np.std(lower)  # else nothing was tested


def test_the_report_judges_these_intervals(fitted, model_and_inputs):
    held_out = pd.read_csv(fitted.run / "test_predictions.csv")
    test = json.loads((fitted.run / "report.json").read_text())["test"]
    model, inputs = model_and_inputs
    lower, upper = model.predict_interval(inputs.loc[held_out["row"]], 0.9)
    for name, values in (("lower", lower), ("upper", upper)):
        np.testing.assert_allclose(test[name], values, rtol=1e-9)
        # Written with four digits of the uncertainty.
        np.testing.assert_array_less(np.abs(held_out[name] - values), 0.001 * held_out["std"])
    inside = (lower <= held_out["y"]) & (held_out["y"] <= upper)
    facts = json.loads((fitted.run / "run.json").read_text())
    assert facts["scores"]["coverage"] == pytest.approx(inside.mean())
    # The picture of all levels has the same intervals; conformal ones up to the one score in which ends are counted.
    pit = np.array(test["pit"])
    away = np.abs(pit - 0.5)
    if model.conformal:
        np.testing.assert_allclose(65 * pit, np.round(65 * pit), atol=1e-9)  # of 64 scores and the row itself
        assert (away[inside] <= 0.45 + 1 / 65).all()
        assert (away[~inside] >= 0.45 - 1 / 65).all()
    else:
        np.testing.assert_array_equal(away <= 0.45, inside)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_a_row_goes_through_the_network_once(bayesnorm, request, monkeypatch, tmp_path, kind):
    fitted = request.getfixturevalue(f"{kind}_run")
    seen = []
    real = TabularEstimator._predictive_of
    monkeypatch.setattr(TabularEstimator, "_predictive_of", lambda self, x: seen.append(len(x)) or real(self, x))
    assert bayesnorm("predict", fitted.run, fitted.data, "--out", tmp_path / "out.csv").code == 0
    assert seen == [80]


def test_few_rows_are_held_out_too(guaranteed):
    facts = json.loads((guaranteed.run / "run.json").read_text())
    assert facts["rows"] == {"training": 64, "test": 16}
    assert facts["settings"]["conformal"] is True


def test_an_interval_that_has_no_end(bayesnorm, guaranteed, tmp_path):
    ended = bayesnorm("predict", guaranteed.run, guaranteed.data, "--out", tmp_path / "out.csv", "--level", 0.99)
    assert ended.code == 0, ended.err
    told = "80 of 80 intervals are infinite: there are too few training rows to guarantee 99 % coverage. Use a lower"
    assert told in ended.err
    frame = pd.read_csv(tmp_path / "out.csv")
    assert (frame["lower"] == -math.inf).all()
    assert (frame["upper"] == math.inf).all()


def test_a_sheet_has_words_for_ends_that_are_not_there(bayesnorm, guaranteed, tmp_path):
    pytest.importorskip("openpyxl", reason="needs openpyxl: pip install openpyxl")
    out = tmp_path / "out.xlsx"
    assert bayesnorm("predict", guaranteed.run, guaranteed.data, "--out", out, "--level", 0.99).code == 0
    sheet = pd.read_excel(out, dtype=str)
    assert set(sheet["lower"]) == {"-inf"}
    assert set(sheet["upper"]) == {"inf"}


def test_a_report_of_intervals_without_an_end(bayesnorm, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
    pytest.importorskip("jinja2", reason="needs jinja2: pip install jinja2")
    fitted = _fit(tmp_path, houses(22), "--target", "price", "--conformal")
    text = (fitted.run / "report.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["test"]["upper"][0] == "inf"  # JSON that others read too
    test = report_from_values(json.loads(text)).test
    assert test.inside.all()
    assert np.isinf(test.lower).all()
    assert "4 of 4 intervals are infinite" in fitted.err
    assert bayesnorm("report", fitted.run).code == 0
    page = (fitted.run / "report.html").read_text()
    assert "−∞" in page
    assert "intervals are infinite" in page
