"""Runs whose JSON files were changed: one line says so, or the changed values do no harm."""

import json
import os
import shutil

import pytest

from ..sealed_runs import seal

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")

DEEP = "[" * 500 + "]" * 500
VERY_DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "1" + "0" * 400
ODD = ("null", "-1", "1e-320", "NaN", "Infinity", '"\\u001b[31m"', "[]", '{"a": [[]]}', HUGE)
REFUSED = (DEEP, VERY_DEEP, "9" * 5000, '"\\ud800"', '{"a": 1, "a": 2}', "{", "")


@pytest.fixture
def changed(regression_run, tmp_path):
    """`changed("report.json", ("test", "std", 0), "[]")`: a run with JSON text in place of one value."""

    def change(file, place, text, sealed=True):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(regression_run.run, run)
        values = inner = json.loads((run / file).read_text())
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = "@"
        (run / file).write_text(json.dumps(values).replace('"@"', text))
        if sealed:
            seal(run)
        return run

    return change


REPORT = [
    ("table",),
    ("table", "rows"),
    ("table", "columns", 0),
    ("rows", "values", 0),
    ("test", "std", 0),
    ("test", "levels"),
    ("choice", "settings", 0, "values"),
    ("provenance", "versions"),
    ("curve",),
    ("warnings",),
]


@pytest.mark.parametrize("place", REPORT, ids=lambda place: "-".join(map(str, place)))
def test_a_changed_report(changed, bayesnorm, place):
    for text in (*ODD, *REFUSED):
        run = changed("report.json", place, text)
        ended = bayesnorm("report", run)
        assert ended.code == (1 if text in REFUSED else ended.code)
        if ended.code:
            assert ended.code == 1
            assert ended.err.startswith("error: RUN: "), (text[:20], ended.err)
            assert ended.err.count("\n") == 1
            assert "damaged" in ended.err
        assert "\x1b" not in ended.err


@pytest.mark.parametrize("place", [("columns",), ("columns", 0), ("columns", 0, "name"), ("task",), ("version",)])
def test_changed_facts(changed, bayesnorm, regression_run, place):
    for text in (*ODD, *REFUSED):
        ended = bayesnorm("predict", changed("run.json", place, text), regression_run.data)
        assert ended.code == 1, text[:20]
        assert ended.err.startswith("error: "), ended.err
        assert "Unexpected" not in ended.err
        assert ended.err.count("\n") == 1
        assert "\x1b" not in ended.err


def test_columns_of_the_same_name_are_refused(changed, refuses, regression_run):
    run = changed("run.json", ("columns", 0, "name"), '"town"')
    for command in ("predict", "drift"):
        assert "each name once" in refuses(command, run, regression_run.data)


@pytest.mark.parametrize(
    ("command", "file", "place", "text"),
    [
        ("predict", "run.json", ("columns", 0, "name"), '"age"'),
        ("drift", "run.json", ("settings", "seed"), "1"),
        ("report", "report.json", ("test", "std", 0), "1"),
    ],
)
def test_every_change_is_noticed(changed, bayesnorm, regression_run, command, file, place, text):
    """Also where the changed values would do."""
    run = changed(file, place, text, sealed=False)
    ended = bayesnorm(command, run, *([] if command == "report" else [regression_run.data]))
    assert ended.code == 1
    assert ended.err == f"error: RUN: {run / file} was changed after it was written. Run `bayesnorm fit` again.\n"


def test_a_model_of_another_run_is_noticed(regression_run, classification_run, refuses, tmp_path):
    run = shutil.copytree(regression_run.run, tmp_path / "run")
    shutil.copy(classification_run.run / "model.bayesnorm", run)
    assert "model.bayesnorm was changed after it was written" in refuses("predict", run, regression_run.data)


def test_a_file_of_any_size_is_not_read_whole(regression_run, refuses, tmp_path):
    run = shutil.copytree(regression_run.run, tmp_path / "run")
    os.truncate(run / "run.json", 2**33)
    assert "run.json is damaged (it has more than 33,554,432 bytes)" in refuses("predict", run, regression_run.data)
