"""`bayesnorm predict --explain`, and what a run's report says of its uncertainty."""

import csv
import io
import json

import numpy as np
import pytest

from bayesnorm.cli.run_folder import json_value
from bayesnorm.cli.stored_report import report_from_values

from .conftest import houses, write_csv

pd = pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
tabular = pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")


def test_the_columns_that_uncertainty_comes_from(bayesnorm, regression_run, tmp_path):
    new = write_csv(tmp_path / "new.csv", houses(25, seed=1))
    ended = bayesnorm("predict", regression_run.run, new, "--explain")
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    model = tabular.load(regression_run.run / "model.bayesnorm")
    table = pd.read_csv(new)[["area", "age", "town"]]
    assert [row["uncertainty_from"] for row in rows] == model.explain_uncertainty(table).words()
    assert any(row["uncertainty_from"] for row in rows)
    assert "uncertainty_from" not in bayesnorm("predict", regression_run.run, new).out


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_a_run_keeps_why_it_doubts(request, kind):
    fitted = request.getfixturevalue(f"{kind}_run")
    report = report_from_values(json.loads((fitted.run / "report.json").read_text()))
    model = tabular.load(fitted.run / "model.bayesnorm")
    explained = model.explain_uncertainty(pd.DataFrame(report.rows.values, columns=report.rows.names))
    result = report.reasons
    assert [entry.row for entry in result.rows] == np.argsort(-explained.total.to_numpy())[:5].tolist()
    assert result.explained == len(report.rows.numbers) == 16
    for entry in result.rows:
        np.testing.assert_allclose(entry.shares, explained.shares.iloc[entry.row], rtol=1e-6, atol=1e-9)
        assert entry.total == pytest.approx(explained.total[entry.row], rel=1e-6)
        assert entry.words == explained.words(2)[entry.row]
    first = explained.overall()["first"]
    assert result.first == pytest.approx(first[first > 0].to_dict())
    assert list(result.first.values()) == sorted(result.first.values(), reverse=True)


def test_reports_with_and_without_reasons_are_read_again(regression_run):
    values = json.loads((regression_run.run / "report.json").read_text())
    assert json_value(report_from_values(values)) == values
    del values["reasons"]  # as runs of earlier versions
    assert report_from_values(values).reasons is None
    assert report_from_values({**values, "reasons": None}).reasons is None
