"""Example tables: `bayesnorm data csv`, and the tables and the page of the tutorial about a spreadsheet."""

import csv
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorials" / "spreadsheet.md"


def read(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_csv_of_a_bundled_set(bayesnorm, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    out = tmp_path / "diabetes.csv"
    assert bayesnorm("data", "csv", "sklearn:diabetes", "--out", out).code == 0
    header, *rows = read(out)
    plain = datasets.load_diabetes(scaled=False)
    assert header == [*plain.feature_names, "target"]
    assert np.array_equal(np.array(rows, float), np.column_stack([plain.data, plain.target]))


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [
        ("sklearn:breast_cancer", 569, {"malignant", "benign"}),
        ("sklearn:iris", 150, {"setosa", "versicolor", "virginica"}),
        ("sklearn:wine", 178, {"class_0", "class_1", "class_2"}),
        ("sklearn:digits", 1797, set("0123456789")),
    ],
)
def test_csv_of_bundled_classes_to_standard_output(bayesnorm, name, rows, classes):
    pytest.importorskip("sklearn")
    ended = bayesnorm("data", "csv", name, "--out", "-")
    header, *result = csv.reader(ended.out.splitlines())
    assert header[-1] == "target"
    assert len(result) == rows
    assert {row[-1] for row in result} == classes
    assert ended.err == ""


def test_csv_overwrites_only_when_told(bayesnorm, refuses, tmp_path):
    pytest.importorskip("sklearn")
    out = tmp_path / "iris.csv"
    out.write_text("mine")
    line = refuses("data", "csv", "sklearn:iris", "--out", out)
    assert line == f"error: --out: {out} exists already. Use --force to overwrite it, or choose another name.\n"
    assert out.read_text() == "mine"
    ended = bayesnorm("data", "csv", "sklearn:iris", "--out", out, "--force")
    assert (ended.code, ended.err) == (0, f"Wrote 150 rows and 5 columns to {out}.\n")
    assert len(read(out)) == 151


@pytest.mark.parametrize(
    ("name", "out", "code", "message"),
    [
        ("frob", "a.csv", 2, "NAME must be one of sklearn:diabetes, sklearn:breast_cancer"),
        ("sklearn:iris", ".", 1, "is a folder. Pass the name of a file"),
        ("sklearn:iris", "no/such/a.csv", 1, "does not exist. Create it first"),
    ],
)
def test_csv_refuses(refuses, tmp_path, name, out, code, message):
    assert message in refuses("data", "csv", name, "--out", tmp_path / out, code=code)
    assert not (tmp_path / "a.csv").exists()


def test_csv_without_scikit_learn(refuses, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    line = refuses("data", "csv", "sklearn:iris", "--out", tmp_path / "a.csv")
    assert line == "error: sklearn:iris needs scikit-learn and pandas. Run: pip install scikit-learn pandas\n"


@pytest.fixture(scope="module")
def walk():
    return runpy.run_path(str(DOCS / "spreadsheet_walk.py"))


def test_the_tutorial_has_a_place_for_everything(walk):
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall("<!-- made: (.*) -->", page)) == sorted(["table", "offers", "outcome", *walk["COMMANDS"]])
    for command in walk["COMMANDS"].values():
        assert f"$ bayesnorm {command}\n" in page
    pictures = re.findall(r"\((\.\./spreadsheet_.*?\.png)\)", page)
    assert len(pictures) == 5
    for picture in pictures:
        assert (PAGE.parent / picture).stat().st_size < 300_000


def test_the_tables_of_the_tutorial(walk, tmp_path):
    walk["main"](["--tables", str(tmp_path)])
    page = PAGE.read_text(encoding="utf-8")
    lines = (tmp_path / "flats.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 601
    assert "\n".join(lines[:4]) in page
    assert "rent" not in (tmp_path / "new_flats.csv").read_text(encoding="utf-8").splitlines()[0]
    assert walk["amount"](walk["euros"](1234567.891)) == 1234567.89
