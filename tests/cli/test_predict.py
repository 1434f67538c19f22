"""`bayesnorm predict` and `bayesnorm report`: from a run that is there."""

import contextlib
import csv
import io
import json
import shutil
import signal
import sys

import numpy as np
import pytest

from bayesnorm.cli import new_rows as module
from bayesnorm_command import main

from ..sealed_runs import seal
from .conftest import houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")


def parse(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def new(tmp_path):
    return write_csv(tmp_path / "new.csv", houses(25, seed=1))


def numbers(rows, *names):
    return np.array([[float(row[name]) for name in names] for row in rows])


def test_the_held_out_rows_again(bayesnorm, regression_run):
    rows = parse(bayesnorm("predict", regression_run.run, regression_run.data).out)
    assert len(rows) == 80
    stored = parse((regression_run.run / "test_predictions.csv").read_text())
    names = ("mean", "std", "lower", "upper", "epistemic_std", "aleatoric_std")
    again = [rows[int(row["row"]) - 1] for row in stored]
    assert np.allclose(numbers(again, *names), numbers(stored, *names), rtol=1e-9)
    assert [row["unusual"] for row in again] == [row["unusual"] for row in stored]
    rows = parse(bayesnorm("predict", regression_run.run, regression_run.data, "--digits", 17).out)
    total = numbers(rows, "std")[:, 0] ** 2
    parts = (numbers(rows, "epistemic_std", "aleatoric_std") ** 2).sum(1)
    assert np.allclose(total, parts, rtol=1e-6)


def test_classes(bayesnorm, classification_run, new):
    rows = parse(bayesnorm("predict", classification_run.run, new, "--digits", 17).out)
    assert list(rows[0]) == [
        "row", "predicted", "p(Ede)", "p(Oss)", "p(Ulft)", "entropy", "mutual_information", "unusual", "reason",
    ]  # fmt: skip
    probs = numbers(rows, "p(Ede)", "p(Oss)", "p(Ulft)")
    assert np.allclose(probs.sum(1), 1)
    assert [row["predicted"] for row in rows] == [("Ede", "Oss", "Ulft")[k] for k in probs.argmax(1)]
    assert np.allclose(numbers(rows, "entropy")[:, 0], -(probs * np.log(probs)).sum(1), atol=1e-6)


def test_letters_that_the_console_does_not_know(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process goes on, with signals as they are
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    lines = [["a", "y"], *([k % 7 + 9 * (k % 2), ("\u65e5\u672c", "\xe9")[k % 2]] for k in range(40))]
    data = write_csv(tmp_path / "t.csv", lines)
    assert fit(data=data, target="y").code == 0
    console = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    with contextlib.redirect_stdout(console), pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "run"), str(data)])
    assert ended.value.code == 0
    console.flush()
    told = console.buffer.getvalue().decode("cp1252")
    assert parse(told)[0].keys() >= {"p(\xe9)", "p(\\u65e5\\u672c)"}


def test_level(bayesnorm, regression_run, new):
    wide, narrow = (parse(bayesnorm("predict", regression_run.run, new, "--level", level).out) for level in (0.9, 0.5))
    widths = [np.diff(numbers(rows, "lower", "upper"))[:, 0] for rows in (wide, narrow)]
    assert (widths[0] > 1.5 * widths[1]).all()


def test_a_file_of_predictions(bayesnorm, refuses, regression_run, new, tmp_path):
    out = tmp_path / "out.csv"
    arguments = ("predict", regression_run.run, new, "--out", out)
    ended = bayesnorm(*arguments)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith(f"Wrote 25 predictions to {out}.")
    assert out.read_text() == bayesnorm("predict", regression_run.run, new, "--out", "-").out
    assert oct(out.stat().st_mode & 0o777) == oct(new.stat().st_mode & 0o777)
    out.write_text("mine")
    assert "exists already. Use --force" in refuses(*arguments)
    assert out.read_text() == "mine"
    told = json.loads(bayesnorm(*arguments, "--force", "--json", "--level", 0.8).out)
    unlike = sum(row["unusual"] == "True" for row in parse(out.read_text()))
    assert sum(told.pop("reason").values()) >= unlike
    assert told.pop("drift").keys() == {"drifted", "p_value", "moved"}
    assert told == {"rows": 25, "unusual": unlike, "out": str(out), "task": "regression", "level": 0.8}


def test_parts_are_the_whole(bayesnorm, regression_run, new, monkeypatch):
    whole = bayesnorm("predict", regression_run.run, new).out
    monkeypatch.setattr(module, "CHUNK", 4)
    parts = bayesnorm("predict", regression_run.run, new).out
    assert [row["row"] for row in parse(parts)] == [str(number) for number in range(1, 26)]
    names = ("mean", "std", "lower", "upper")
    assert np.allclose(numbers(parse(parts), *names), numbers(parse(whole), *names), rtol=1e-9)


def test_other_orders_and_further_columns_change_nothing(bayesnorm, regression_run, new, tmp_path):
    lines = [[line[2], "more", line[0], line[1]] for line in houses(25, seed=1)]
    lines[0][1] = "note"
    moved = write_csv(tmp_path / "moved.csv", lines, ";")
    assert bayesnorm("predict", regression_run.run, moved).out == bayesnorm("predict", regression_run.run, new).out


def test_rows_unlike_training_are_told(bayesnorm, regression_run, tmp_path):
    lines = [["area", "age", "town"], [100, 40, "Oss"], [1e30, 40, "Oss"], [100, 40, "Atlantis"], ["", "", ""]]
    data = write_csv(tmp_path / "odd.csv", lines)
    rows = parse(bayesnorm("predict", regression_run.run, data).out)
    assert [row["unusual"] for row in rows] == ["False", "True", "True", "True"]
    assert np.isfinite(numbers(rows, "mean", "std")).all()
    ended = bayesnorm("predict", regression_run.run, data, "--out", tmp_path / "out.csv")
    assert "3 of 4 rows are unusual compared with the training rows: " in ended.err
    assert [row["reason"] for row in rows][1:3] == [
        "area above 199.53, the largest in training",
        "town is 'Atlantis', which does not occur in training",
    ]
    assert rows[3]["reason"].startswith("area is missing, but was never missing in training; ")


def test_one_row(bayesnorm, regression_run, tmp_path):
    data = write_csv(tmp_path / "one.csv", [["area", "age", "town"], [100, 40, "Oss"]])
    assert len(parse(bayesnorm("predict", regression_run.run, data).out)) == 1


@pytest.mark.parametrize(
    ("lines", "options", "code", "message"),
    [
        ([["area", "age", "twon"], [1, 2, "x"]], (), 1, "no column 'town'. Did you mean 'twon'? Its columns are area"),
        ([["area", "age", "town"], *[["big", 2, "x"]] * 20], (), 1, "numbers in training, but row 1 contains 'big'"),
        ([["area", "age", "town"]], (), 1, "has column names, but no rows"),
        ([["area", "age", "town"], [1, 2, "x"]], ("--level", "1"), 2, "--level must be a number between 0 and 1, got"),
        ([["area", "age", "town"], [1, 2, "x"]], ("--max-size", "0"), 1, "MiB, more than 0"),
    ],
)  # fmt: skip
def test_refuses(refuses, regression_run, tmp_path, lines, options, code, message):
    data = write_csv(tmp_path / "t.csv", lines)
    line = refuses("predict", regression_run.run, data, "--out", tmp_path / "out.csv", *options, code=code)
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_another_column_in_a_later_part_leaves_no_file(refuses, regression_run, tmp_path, monkeypatch):
    lines = [line[:3] for line in houses(60)]
    for line in lines[31:]:
        line[0] = "big"
    monkeypatch.setattr(module, "CHUNK", 30)
    data = write_csv(tmp_path / "t.csv", lines)
    line = refuses("predict", regression_run.run, data, "--out", tmp_path / "out.csv")
    assert "row 31 contains 'big'" in line
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_odd_cell_is_predicted_as_missing_and_marked(bayesnorm, regression_run, tmp_path):
    lines = [line[:3] for line in houses(10)]
    empty = [list(line) for line in lines]
    for row, place, cell in ((9, 0, "big"), (4, 0, "inf"), (2, 1, "old; very")):
        lines[row][place], empty[row][place] = cell, ""
    odd, missing = (
        parse(bayesnorm("predict", regression_run.run, write_csv(tmp_path / "t.csv", table)).out)
        for table in (lines, empty)
    )
    for row, (one, other) in enumerate(zip(odd, missing, strict=True), 1):
        assert [one[name] for name in ("mean", "std", "lower")] == [other[name] for name in ("mean", "std", "lower")]
        if row in (9, 4, 2):
            assert one["unusual"] == "True"
            assert "which cannot be read and counts as missing" in one["reason"]
            assert "was never missing" not in one["reason"].partition("cannot be read")[0]
        else:
            assert one["reason"] == other["reason"]
    assert odd[8]["reason"].startswith("area contains 'big', which cannot be read")
    assert odd[1]["reason"].endswith("age contains 'old, very', which cannot be read and counts as missing")


def test_refuses_odd_places(refuses, regression_run, new, tmp_path):
    assert "is not a run. Pass a folder that `bayesnorm fit --out` created" in refuses("predict", tmp_path, new)
    assert "does not exist" in refuses("predict", regression_run.run, tmp_path / "none.csv")
    run = regression_run.run
    assert "Create it first" in refuses("predict", run, new, "--out", tmp_path / "no" / "out.csv")
    assert "is the input table" in refuses("predict", run, new, "--out", new, "--force")
    assert "--json needs a file" in refuses("predict", run, new, "--json", code=2)
    (tmp_path / "folder").mkdir()
    assert "--out: " in (line := refuses("predict", run, new, "--out", tmp_path / "folder", "--force"))
    assert "is a folder" in line


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{", "is damaged"),
        ("run.json", '{"format": "other"}', "is not a file of `bayesnorm fit`"),
        ("run.json", '{"format": "bayesnorm-run", "version": 99}', "has format version 99, but this bayesnorm"),
        ("run.json", '{"format": "bayesnorm-run", "version": 1, "columns": 3}', "run.json is 3 in the file, but"),
        ("run.json", "[" * 100_000, "is damaged"),
        ("model.bayesnorm", "x", "model.bayesnorm"),
        ("model.bayesnorm", None, "model.bayesnorm"),
    ],
)
def test_a_damaged_run(refuses, regression_run, new, tmp_path, name, content, message):
    run = tmp_path / "run"
    shutil.copytree(regression_run.run, run)
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_text(content)
    seal(run)
    assert message in refuses("predict", run, new)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_report_again(bayesnorm, request, tmp_path, kind):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install jinja2")
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
    fitted = request.getfixturevalue(f"{kind}_run")
    run = tmp_path / "run"
    shutil.copytree(fitted.run, run)
    before = (run / "report.html").read_text()
    (run / "report.html").unlink()
    ended = bayesnorm("report", run)
    assert (ended.code, ended.out, ended.err) == (0, "", f"Wrote {run / 'report.html'}.\n")
    assert (run / "report.html").read_text() == before
    assert bayesnorm("report", run, "--out", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").read_text() == before


def test_report_refuses(refuses, regression_run, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(regression_run.run, run)
    assert "Create it first" in refuses("report", run, "--out", tmp_path / "no" / "page.html")
    assert f"--out: {tmp_path} is a folder" in refuses("report", run, "--out", tmp_path)
    (run / "report.json").write_text('{"table": {}}')
    seal(run)
    assert "report.json are damaged" in refuses("report", run)
    values = json.loads((regression_run.run / "report.json").read_text())
    for part in values["test"]:
        (run / "report.json").write_text(json.dumps({**values, "test": {**values["test"], part: {}}}))
        seal(run)
        assert "Unexpected" not in refuses("report", run)
    (run / "report.json").unlink()
    assert "report.json is missing" in refuses("report", run)
    assert "is not a run" in refuses("report", tmp_path)


def test_report_without_jinja(refuses, regression_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    line = refuses("report", regression_run.run, "--out", tmp_path / "page.html")
    assert line == "error: HTML reports need jinja2. Install it with: pip install jinja2\n"
