"""Estimators as ONNX files, run by onnxruntime, against the estimators."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from bayesnorm.errors import BayesNormError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, export_table, exporting
from bayesnorm.tabular.encoded_columns import DateColumn
from bayesnorm.tabular.table_module import _date_features
from bayesnorm_runtime import Table

from .conftest import QUICK, line_model, mixed_model, mixed_rows

runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install onnxscript")


def predicted(path, **inputs):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True)), session


def test_numbers_categories_and_missing_values(tmp_path):
    model, (X, _) = mixed_model(), mixed_rows()
    result = export_table(model, tmp_path / "model.onnx", level=0.8)
    assert result.inputs == ("size", "town", "grade", "new")
    assert 0 < result.largest_difference < 1e-4
    X = X.assign(town=X["town"].where(np.arange(len(X)) > 2, "a new town"))
    for rows in (1, 5, len(X)):
        part = X.iloc[:rows]
        values, session = predicted(
            tmp_path / "model.onnx",
            size=part["size"].to_numpy(float),
            town=part["town"].to_numpy(object),
            grade=part["grade"].astype(str).to_numpy(object),
            new=part["new"].to_numpy(float),
        )
        mean, std = model.predict(part, return_std=True)
        lower, upper = model.predict_interval(part, 0.8)
        for name, expected in {"mean": mean, "std": std, "lower": lower, "upper": upper}.items():
            assert values[name].shape == (rows,)
            np.testing.assert_allclose((values[name] - expected) / std, 0, atol=1e-4)
        uncertainty = model.uncertainty(part)
        np.testing.assert_allclose(values["epistemic_std"], uncertainty["epistemic_std"], rtol=1e-3)
        np.testing.assert_allclose(values["aleatoric_std"], uncertainty["aleatoric_std"], rtol=1e-3)
    described = json.loads(session.get_modelmeta().custom_metadata_map["bayesnorm"])
    assert [column["kind"] for column in described["columns"]] == ["number", "category", "category", "number"]
    assert described["level"] == 0.8


def test_classes_dates_and_large_numbers(tmp_path):
    generator = np.random.default_rng(0)
    days = np.datetime64("2019-11-01T06:30:00", "s") + generator.integers(0, 10**8, 60).astype("timedelta64[s]")
    X = pd.DataFrame({"day": days, "year": 2_000 + generator.normal(size=60)})
    y = np.where(X["day"].dt.month % 2 == 1, "odd", "even")
    model = BayesNormClassifier(**QUICK).fit(X, y)
    export_table(model, tmp_path / "model.onnx")
    X.loc[3, "day"] = pd.NaT
    seconds = X["day"].to_numpy("datetime64[s]").astype(np.int64).astype(float)
    seconds[3] = np.nan
    values, _ = predicted(tmp_path / "model.onnx", day=seconds, year=X["year"].to_numpy())
    np.testing.assert_allclose(values["probs"], model.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(values["entropy"], model.uncertainty(X)["entropy"], atol=1e-5)
    table = Table(tmp_path / "model.onnx")
    X.to_csv(tmp_path / "new.csv")
    X.to_parquet(tmp_path / "new.parquet")
    for path in (tmp_path / "new.csv", tmp_path / "new.parquet"):
        read = table.predict_file(path)
        np.testing.assert_array_equal(read["probs"], values["probs"])
        assert list(read["predicted"]) == list(model.predict(X))


@pytest.mark.parametrize("start", ["1899-12-25", "1968-02-20", "1999-12-20", "2000-02-20", "2099-12-25", "2400-02-20"])
def test_every_day_around_leap_years(start):
    hours = np.arange(0, 800 * 24, 5).astype("timedelta64[h]")
    dates = (np.datetime64(start, "h") + hours).astype("datetime64[s]")
    column = DateColumn.fit("day", dates)
    assert column.year
    assert column.day
    assert column.weekdays is not None
    features = _date_features(column, torch.from_numpy(dates.astype(np.int64).astype(float)))
    np.testing.assert_allclose(torch.stack(features).numpy(), np.stack(column.encode(dates)[0]), atol=1e-6)


def test_a_failed_comparison_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "TOLERANCE", 1e-12)
    with pytest.raises(BayesNormError, match=r"the largest difference is .* deviations, .* Nothing was written"):
        export_table(line_model(), tmp_path / "model.onnx")
    assert not [*tmp_path.iterdir()]


def test_refusals(tmp_path, line):
    path = tmp_path / "model.onnx"
    with pytest.raises(BayesNormError, match=r'must end with "\.onnx"'):
        export_table(line_model(), tmp_path / "model.pt2")
    X, y = line
    quick = {**QUICK, "max_epochs": 2}
    with pytest.raises(BayesNormError, match="several targets cannot be exported"):
        export_table(BayesNormRegressor(**quick).fit(X, np.stack([y, y], 1)), path)
    with pytest.raises(BayesNormError, match="conformal intervals cannot be exported"):
        export_table(BayesNormRegressor(**quick, conformal=True).fit(X, y), path)
    named = BayesNormRegressor(**quick).fit(pd.DataFrame(X, columns=["std", "b"]), y)
    with pytest.raises(BayesNormError, match="a column called std, which is the name of an output"):
        export_table(named, path)
    assert not [*tmp_path.iterdir()]
