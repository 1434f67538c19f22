"""`fit --conformal`: intervals with a guarantee, in predictions, report and `predict`; ends that there are not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

import pandas as pd

from bayesnorm import tabular
from bayesnorm.cli.file_columns import convert_columns
from bayesnorm.cli.report import report_from_values
from bayesnorm.cli.tables import open_table, read_table

from .conftest import _fit, houses


@pytest.fixture(scope="module")
def guaranteed(tmp_path_factory):
    return _fit(tmp_path_factory.mktemp("conformal"), houses(80), "--target", "price", "--conformal", "--members", "5")


@pytest.fixture
def model_and_inputs(guaranteed):
    inputs, _ = convert_columns(read_table(open_table(guaranteed.data)), guaranteed.data)
    return tabular.load(guaranteed.run / "model.bayesnorm"), inputs.drop(columns="price")


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_predict_gives_the_guaranteed_intervals(bayesnorm, guaranteed, model_and_inputs, tmp_path, level):
    options = ("--out", tmp_path / "out.csv", "--level", level, "--digits", 17)
    assert bayesnorm("predict", guaranteed.run, guaranteed.data, *options).code == 0
    model, inputs = model_and_inputs
    lower, upper = model.predict_interval(inputs, level)
    found = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(found["lower"], lower, rtol=1e-9)
    np.testing.assert_allclose(found["upper"], upper, rtol=1e-9)
    own = model.interval_of(model.predict_dist(inputs), level)[0][:, 0].numpy()
    assert np.abs(own - lower).max() > 1e-2 * np.std(lower)  # else nothing was tested


def test_the_report_judges_these_intervals(guaranteed, model_and_inputs):
    kept = pd.read_csv(guaranteed.run / "test_predictions.csv")
    test = json.loads((guaranteed.run / "report.json").read_text())["test"]
    model, inputs = model_and_inputs
    lower, upper = model.predict_interval(inputs.loc[kept["row"]], 0.9)
    np.testing.assert_allclose(test["lower"], lower, rtol=1e-9)
    np.testing.assert_allclose(test["upper"], upper, rtol=1e-9)
    inside = (lower <= kept["y"]) & (kept["y"] <= upper)
    facts = json.loads((guaranteed.run / "run.json").read_text())
    assert facts["scores"]["coverage"] == pytest.approx(inside.mean())
    # The picture of all levels has the same intervals, up to the one score in which ends are counted.
    pit = np.array(test["pit"])
    np.testing.assert_allclose(65 * pit, np.round(65 * pit), atol=1e-9)  # of 64 scores and the row itself
    away = np.abs(pit - 0.5)
    assert (away[inside] <= 0.45 + 1 / 65).all()
    assert (away[~inside] >= 0.45 - 1 / 65).all()


def test_few_rows_are_held_out_too(guaranteed):
    facts = json.loads((guaranteed.run / "run.json").read_text())
    assert facts["rows"] == {"training": 64, "test": 16}
    assert facts["settings"]["conformal"] is True


def test_an_interval_that_has_no_end(bayesnorm, guaranteed, tmp_path):
    ended = bayesnorm("predict", guaranteed.run, guaranteed.data, "--out", tmp_path / "out.csv", "--level", 0.99)
    assert ended.code == 0, ended.err
    told = "80 of 80 intervals are infinite: there are too few training rows to guarantee 99 % coverage. Use a lower"
    assert told in ended.err
    found = pd.read_csv(tmp_path / "out.csv")
    assert (found["lower"] == -math.inf).all()
    assert (found["upper"] == math.inf).all()


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
