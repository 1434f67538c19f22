"""`bayesnorm drift`, and what `bayesnorm predict` says of new rows as a whole."""

import json
import shutil

import pytest

from bayesnorm import files

from ..sealed_runs import seal
from .conftest import houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")


@pytest.fixture
def like(tmp_path):
    return write_csv(tmp_path / "like.csv", [line[:3] for line in houses(25, seed=1)])


@pytest.fixture
def moved(tmp_path):
    """Larger houses in a town that training never had, without the column of prices."""
    head, *lines = [line[:3] for line in houses(25, seed=1)]
    return write_csv(tmp_path / "moved.csv", [head, *([f"{3 * float(a):.2f}", b, "Atlantis"] for a, b, _ in lines)])


def test_rows_like_those_of_training(bayesnorm, regression_run, like, tmp_path):
    ended = bayesnorm("drift", regression_run.run, like, "--fail-on-drift", "--out", tmp_path / "page.html")
    assert ended.code == 0
    assert "These 25 rows do not differ significantly from the training rows" in ended.out
    assert "no single column (3 tested)" in ended.out
    assert ended.err == ""
    assert "No single column differs" in (tmp_path / "page.html").read_text()


def test_rows_from_elsewhere(bayesnorm, regression_run, moved, tmp_path):
    page = tmp_path / "page.html"
    ended = bayesnorm("drift", regression_run.run, moved, "--out", page)
    assert ended.code == 0
    assert "These 25 rows differ from the training rows." in ended.out
    assert "100 % of rows have a category that is not in the training rows" in ended.out
    assert "times the spread in training" in ended.out
    (single,) = [line for line in ended.out.splitlines() if line.startswith("single rows")]
    reason = "town is 'Atlantis', which does not occur in training (25)"  # the same that `predict` has in each row
    assert "25 of 25 rows (100 %) are unusual compared with the training rows: " in single
    assert reason in single
    text = page.read_text()
    assert reason.replace("'", "&#39;") in text
    assert text.count("<svg") == 3  # two columns and the network
    assert "bayesnorm drift" in text
    assert "The error on these rows is not estimated" in ended.out  # nothing says how wrong a regression is now


def test_exit_code_and_json(bayesnorm, regression_run, moved, tmp_path):
    page = tmp_path / "page.html"
    ended = bayesnorm("drift", regression_run.run, moved, "--out", page, "--json", "--fail-on-drift")
    assert ended.code == 3
    assert "have drifted from the training rows (--fail-on-drift: exit code 3)." in ended.err
    told = json.loads(ended.out)
    assert told["drifted"] is True
    assert told["p_value"] < 1e-6
    assert told["reason"]["town is 'Atlantis', which does not occur in training"] == 25
    assert set(told["moved"]) == {"area", "town"}
    assert told["found"]["network"]["layers"]
    assert told["out"] == str(page)


def test_the_page_is_beside_the_report(bayesnorm, classification_run, tmp_path):
    run = shutil.copytree(classification_run.run, tmp_path / "run")
    ended = bayesnorm("drift", run, classification_run.data)
    assert ended.code == 0
    assert "Error on these rows: about" in ended.out
    assert "Error on these rows: about" in (run / "drift.html").read_text()


def test_the_drift_of_a_classifier_is_printed_as_json(bayesnorm, classification_run, tmp_path):
    ended = bayesnorm("drift", classification_run.run, classification_run.data, "--out", tmp_path / "page", "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert told["found"]["network"]["layers"]
    assert 0 <= told["expected_error"]["before"]["low"] <= told["expected_error"]["before"]["value"] <= 1


def test_one_row(bayesnorm, regression_run, tmp_path):
    data = write_csv(tmp_path / "one.csv", [["area", "age", "town"], [100, 40, "Oss"]])
    ended = bayesnorm("drift", regression_run.run, data, "--out", tmp_path / "page.html", "--fail-on-drift")
    assert ended.code == 0, ended
    assert "This row does not differ significantly from the training rows" in ended.out


def test_predict_says_it_in_one_line(bayesnorm, regression_run, like, moved, tmp_path):
    out = tmp_path / "out.csv"
    assert bayesnorm("predict", regression_run.run, like).err == ""
    ended = bayesnorm("predict", regression_run.run, like, "--out", out)
    rows = len(like.read_text().splitlines()) - 1
    expected = (
        "No drift: the rows as a whole are like" if rows >= 30 else "No drift is visible: the rows as a whole do not"
    )
    assert ended.err.splitlines()[-1].startswith(expected)
    *_, first, line = bayesnorm("predict", regression_run.run, moved).err.splitlines()
    assert "rows are unusual compared with the training rows: " in first
    assert line.startswith("Drift: the rows as a whole differ from the training rows. Columns that changed: ")
    assert "`bayesnorm drift " in line
    told = json.loads(bayesnorm("predict", regression_run.run, moved, "--out", out, "--force", "--json").out)
    assert told["drift"]["drifted"] is True
    assert set(told["drift"]["moved"]) == {"area", "town"}


def test_a_run_of_an_earlier_version(refuses, regression_run, moved, tmp_path):
    run = shutil.copytree(regression_run.run, tmp_path / "run")
    tensors, config = files.read(run / "model.bayesnorm")
    config.pop("training_columns")
    files.write(run / "model.bayesnorm", tensors, config)
    seal(run)
    for command in ("drift", "predict"):
        assert "of an earlier version. Fit the model again." in refuses(command, run, moved)


def test_refuses(refuses, regression_run, moved, tmp_path):
    assert "is not a run" in refuses("drift", tmp_path, moved)
    assert "Create it first" in refuses("drift", regression_run.run, moved, "--out", tmp_path / "no" / "page.html")
    data = write_csv(tmp_path / "t.csv", [["area", "age", "twon"], [1, 2, "x"]])
    assert "has no column 'town'. Did you mean 'twon'" in refuses("drift", regression_run.run, data)
    assert "is the input table" in refuses("drift", regression_run.run, moved, "--out", moved)
