"""Predictions that people can use: with their ids and inputs, digits that mean something, and as a sheet."""

import csv
import errno
import io
import os
import sys
import tempfile

import numpy as np
import pytest

from bayesnorm.cli import output_files
from bayesnorm.cli.output_files import STDOUT
from bayesnorm.cli.predictions import add_table_columns, round_predictions
from bayesnorm.errors import BayesNormError

from .conftest import houses, write_csv

pd = pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

NAMES = ["mean", "std", "lower", "upper", "epistemic_std", "aleatoric_std"]


@pytest.fixture
def new(tmp_path):
    """Rows with ids, one of which has a leading zero, and a column that is called as one of the predictions."""
    header, *lines = houses(12, seed=1)
    named = [["id", *header, "mean"], *([f"{row:04}", *line, f"{row},5"] for row, line in enumerate(lines))]
    return write_csv(tmp_path / "new.csv", named, ";")


def test_ids_and_inputs_stand_beside_predictions_as_the_file_has_them(bayesnorm, regression_run, new):
    told = bayesnorm("predict", regression_run.run, new, "--id", "id", "--with-inputs").out
    rows = [*csv.DictReader(io.StringIO(told))]
    source_rows = [*csv.DictReader(io.StringIO(new.read_text()), delimiter=";")]
    assert list(rows[0]) == [
        "row", "id", *NAMES, "unusual", "reason", "area", "age", "town", "price", "mean (table)",
    ]  # fmt: skip
    for name, column in (("id", "id"), ("area", "area"), ("age", "age"), ("town", "town"), ("mean (table)", "mean")):
        assert [row[name] for row in rows] == [row[column] for row in source_rows]
    alone = [*csv.DictReader(io.StringIO(bayesnorm("predict", regression_run.run, new, "--id", "id").out))]
    assert list(alone[0]) == ["row", "id", *NAMES, "unusual", "reason"]
    assert [row["id"] for row in alone] == [row["id"] for row in source_rows]


def test_an_id_that_is_not_there(refuses, regression_run, new):
    assert "--id: " in (line := refuses("predict", regression_run.run, new, "--id", "Id_"))
    assert "Did you mean 'id'?" in line
    # A name that is nothing like any of them is no misspelling.
    assert "did you mean" not in refuses("predict", regression_run.run, new, "--id", "customer")


def test_numbers_have_the_digits_of_their_uncertainty():
    frame = pd.DataFrame(
        {
            "row": [1, 2, 3, 4],
            "mean": [123456.789, 1.23456789, -0.00001, 1e300],
            "std": [98765.4321, 0.0123456789, 0.5, 0.0],
        }
    )
    result = round_predictions(frame, 4)
    assert result["mean"].tolist() == [123457.0, 1.23457, 0.0, 1e300]
    assert result["std"].tolist() == [98765.0, 0.01235, 0.5, 0.0]
    assert not np.signbit(result["mean"][2])
    assert round_predictions(frame, 17).equals(frame)
    classes = pd.DataFrame({"predicted": ["a"], "p(a)": [0.123456789], "entropy": [1.98765]})
    assert round_predictions(classes, 4).iloc[0].tolist() == ["a", 0.1235, 1.9876]


def test_names_that_predictions_have_are_marked():
    frame = pd.DataFrame({"row": [1], "mean": [2.0], "mean (table)": [3.0]})
    result = add_table_columns(frame, pd.DataFrame({"row": ["a"]}), pd.DataFrame({"mean": ["b"]}, index=[7]))
    assert dict(result.iloc[0]) == {"row": 1, "row (table)": "a", "mean": 2, "mean (table)": 3, "mean (table 2)": "b"}


def test_csv_has_whole_numbers_without_a_point(capsys):
    with output_files.prediction_file(STDOUT, spreadsheet_safe=True) as write:
        write(pd.DataFrame({"mean": [1.0, 0.25], "label": ["=1+1", None]}))
        write(pd.DataFrame({"mean": [np.nan], "label": ["x"]}))
    assert capsys.readouterr().out == "mean,label\n1,'=1+1\n0.25,\n,x\n"


def test_a_sheet(bayesnorm, regression_run, new, tmp_path):
    excel = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install openpyxl")
    out = tmp_path / "p.xlsx"
    ended = bayesnorm("predict", regression_run.run, new, "--id", "id", "--with-inputs", "--out", out)
    assert ended.code == 0, ended.err
    names, *rows = excel.load_workbook(out).active.iter_rows()
    results = [dict(zip((name.value for name in names), row, strict=True)) for row in rows]
    assert len(results) == 12
    text = bayesnorm("predict", regression_run.run, new, "--id", "id", "--with-inputs").out
    for row, line in zip(results, csv.DictReader(io.StringIO(text)), strict=True):
        assert row["mean"].value == float(line["mean"])
        assert row["mean"].number_format.startswith("#,##0")
        assert row["area"].value == float(line["area"])
        assert row["id"].value == line["id"]  # 0001 is no number
        assert row["unusual"].value is (line["unusual"] == "True")
    # What it has written it can read.
    again = bayesnorm("predict", regression_run.run, out, "--out", tmp_path / "again.csv")
    assert again.code == 0, again.err


def test_a_sheet_runs_nothing(tmp_path):
    excel = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install openpyxl")
    out = tmp_path / "p.xlsx"
    when = pd.to_datetime(["2024-03-01", None, None])
    with output_files.prediction_file(out, spreadsheet_safe=False) as write:
        write(pd.DataFrame({"=1+1": ["=1+1", "a\x00b", "12.50"], "when": when}))
    cells = [*excel.load_workbook(out).active.iter_rows()]
    assert [row[0].data_type for row in cells[:3]] == ["s", "s", "s"]
    assert [row[0].value for row in cells] == ["=1+1", "=1+1", "a b", 12.5]
    assert str(cells[1][1].value) == "2024-03-01 00:00:00"
    assert cells[2][1].value is None


def test_a_sheet_that_would_be_too_long(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl", reason="needs openpyxl: pip install openpyxl")
    monkeypatch.setattr(output_files, "MOST_SHEET_ROWS", 3)
    says = r"needs more than the 3 rows of an Excel sheet. Choose a name that ends in \.csv"
    opened = output_files.prediction_file(tmp_path / "p.xlsx", spreadsheet_safe=False)
    with pytest.raises(BayesNormError, match=says), opened as write:
        any(map(write, [pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1]})]))
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_named_while_a_sheet_is_written(tmp_path, monkeypatch):
    """openpyxl collects rows in the folder for temporary files, which can be on another disk than the sheet."""
    excel = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install openpyxl")
    out, frame = tmp_path / "p.xlsx", pd.DataFrame({"a": [1.0]})

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for where, name, file in ((excel.Workbook, "save", tempfile.gettempdir()), (os, "fsync", str(out))):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, full)
            with pytest.raises(OSError, match="No space left") as refused:  # noqa: SIM117
                with output_files.prediction_file(out, spreadsheet_safe=False) as write:
                    write(frame)
        assert refused.value.filename == file
        assert [*tmp_path.iterdir()] == []


def test_a_sheet_without_openpyxl(refuses, regression_run, new, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    line = refuses("predict", regression_run.run, new, "--out", tmp_path / "p.xlsx")
    assert "Excel files need openpyxl. Run: pip install openpyxl" in line
