"""Runs whose JSON files were changed: one line says so, or the changed values do no harm."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")

DEEP = "[" * 500 + "]" * 500
VERY_DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "1" + "0" * 400
ODD = ("null", "-1", "1e-320", "NaN", "Infinity", '"\\u001b[31m"', "[]", '{"a": [[]]}', DEEP)
REFUSED = (VERY_DEEP, HUGE, "9" * 5000, '"\\ud800"', "{", "")


@pytest.fixture
def changed(regression_run, tmp_path):
    """`changed("report.json", ("test", "std", 0), "[]")`: a copy of a run with JSON text in place of one value."""

    def change(file, place, text):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(regression_run.run, run)
        values = inner = json.loads((run / file).read_text())
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = "@"
        (run / file).write_text(json.dumps(values).replace('"@"', text))
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
