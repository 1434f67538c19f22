"""`bayesnorm fit`: what it writes and says, every option, and what it refuses; nothing is ever half-written."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from .conftest import QUICK, houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install 'bayesnorm[tabular]'")
tabular = pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install 'bayesnorm[tabular]'")


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "houses.csv", houses(40))


@pytest.fixture
def fit(bayesnorm, table, tmp_path):
    def call(*options, data=table, target="price"):
        return bayesnorm("fit", data, "--target", target, "--out", tmp_path / "run", *QUICK, *options)

    return call


@pytest.fixture
def facts(tmp_path):
    return lambda: json.loads((tmp_path / "run" / "run.json").read_text())


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_a_regression_leaves(regression_run):
    run = regression_run.run
    assert {path.name for path in run.iterdir()} >= {
        "model.bayesnorm",
        "run.json",
        "test_predictions.csv",
        "report.json",
    }
    facts = json.loads((run / "run.json").read_text())
    assert facts["task"] == "regression"
    assert facts["rows"] == {"training": 64, "test": 16}
    assert facts["data"] == {
        "file": "table.csv",
        "sha256": hashlib.sha256(regression_run.data.read_bytes()).hexdigest(),
        "rows": 80,
    }
    assert facts["columns"] == [
        {"name": "area", "kind": "number"},
        {"name": "age", "kind": "number"},
        {"name": "town", "kind": "category"},
    ]
    assert facts["settings"]["hidden"] == [4]
    assert facts["versions"].keys() >= {"bayesnorm", "torch", "python"}
    assert facts["command"].startswith("bayesnorm fit ")
    assert "--target price" in facts["command"]
    # The scores are those of the predictions that were written.
    rows = rows_of(run / "test_predictions.csv")
    y, mean = (np.array([float(row[name]) for row in rows]) for name in ("y", "mean"))
    assert np.sqrt(((y - mean) ** 2).mean()) == pytest.approx(facts["scores"]["rmse"], rel=1e-9)
    inside = [float(row["lower"]) <= float(row["y"]) <= float(row["upper"]) for row in rows]
    assert np.mean(inside) == pytest.approx(facts["scores"]["coverage"])
    # Row numbers are those of the file.
    prices = [line[-1] for line in houses(80)]
    assert [float(prices[int(row["row"])]) for row in rows] == [float(row["y"]) for row in rows]


def test_the_one_error_bar_comes_from_rows_that_were_held_out_in_training(fit, tmp_path, monkeypatch):
    models = []
    save = tabular.BayesNormRegressor.save
    monkeypatch.setattr(tabular.BayesNormRegressor, "save", lambda self, path: models.append(self) or save(self, path))
    assert fit("--quiet").code == 0
    honest = models[0].selection_.out_of_fold
    errors = honest.target.reshape(-1) - honest.predictive.mean.numpy().reshape(-1)
    bar = json.loads((tmp_path / "run" / "report.json").read_text())["test"]["constant_std"]
    assert 0.6 < bar / np.sqrt((errors**2).mean()) < 1.1  # what CRPS asks for is near the errors' own size


def test_what_a_regression_says(regression_run):
    assert "regression: price is a number with 80 different values (--task says otherwise)" in regression_run.err
    assert "training on 64 rows, holding out 16" in regression_run.err
    for word in ("error (RMSE)", "error with doubt (CRPS)", "worth of the doubt", "90 % intervals", "time", "report"):
        assert word in regression_run.out
    assert "Is its doubt honest?" in regression_run.out


def test_what_a_classification_leaves_and_says(classification_run):
    run = classification_run.run
    facts = json.loads((run / "run.json").read_text())
    assert (facts["task"], facts["classes"]) == ("classification", ["Ede", "Oss", "Ulft"])
    rows = rows_of(run / "test_predictions.csv")
    right = [row["predicted"] == row["y"] for row in rows]
    assert np.mean(right) == pytest.approx(facts["scores"]["accuracy"])
    assert all(abs(sum(float(row[f"p({name})"]) for name in facts["classes"]) - 1) < 1e-9 for row in rows)
    assert "classification: town is text, with 3 different values" in classification_run.err
    for word in ("right", "negative log likelihood", "calibration error (ECE)"):
        assert word in classification_run.out


def test_the_page(regression_run):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install 'bayesnorm[report]'")
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'bayesnorm[plots]'")
    page = (regression_run.run / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "price from table.csv" in page
    assert "--target price" in page


def test_the_same_seed_gives_the_same_model(fit, facts, tmp_path):
    found = []
    for seed in (3, 3, 4):
        assert fit("--seed", seed, "--force", "--quiet").code == 0
        found.append((tmp_path / "run" / "test_predictions.csv").read_text())
    assert found[0] == found[1] != found[2]


def test_options_reach_the_model(fit, facts, tmp_path):
    options = ("--method", "dropout", "--drop", "area", "--categorical", "age", "--test-fraction", 0.4)
    ended = fit(*options, "--hidden", "5,3", "--epochs", 1, "--json", "--max-size", 1)
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert told["out"] == str(tmp_path / "run")
    assert told["rows"] == {"training": 24, "test": 16}
    assert told["columns"] == [{"name": "age", "kind": "category"}, {"name": "town", "kind": "category"}]
    model = tabular.load(tmp_path / "run" / "model.bayesnorm")
    assert (model.method, tuple(model.hidden), model.epochs) == ("dropout", (5, 3), 1)


def test_heteroscedastic_and_effective_batch_size(fit, tmp_path):
    assert fit("--heteroscedastic", "--effective-batch-size", "17.5", "--quiet").code == 0
    model = tabular.load(tmp_path / "run" / "model.bayesnorm")
    assert model.heteroscedastic is True
    assert model.effective_batch_size == 17.5
    rows = rows_of(tmp_path / "run" / "test_predictions.csv")
    assert len({row["aleatoric_std"] for row in rows}) > 1


def test_task_overrides_the_guess(fit, facts, table):
    ended = fit("--task", "regression", "--drop", "price", target="age")
    assert ended.code == 0
    assert "--task says otherwise" not in ended.err
    assert facts()["task"] == "regression"


def test_quiet_says_nothing(fit):
    ended = fit("--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_max_rows(fit, facts):
    ended = fit("--max-rows", 30)
    assert "30 of 40 rows were drawn at random (--max-rows)." in ended.err
    assert facts()["rows"] == {"training": 24, "test": 6}
    assert facts()["warnings"] == ["30 of 40 rows were drawn at random (--max-rows)."]


def test_without_what_reports_need(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    ended = fit()
    assert ended.code == 0
    assert "pip install 'bayesnorm[report,plots]'" in ended.out
    assert not (tmp_path / "run" / "report.html").exists()


def test_rows_without_a_target_are_left_out_and_said(fit, tmp_path, facts):
    lines = houses(40)
    for row in (2, 5, 9):
        lines[row][-1] = ""
    ended = fit(data=write_csv(tmp_path / "holes.csv", lines))
    assert ended.code == 0
    assert "3 rows without a value in price were left out." in ended.err
    assert facts()["data"]["rows"] == 37
    tested = [int(row["row"]) for row in rows_of(tmp_path / "run" / "test_predictions.csv")]
    assert not {2, 5, 9} & set(tested)


@pytest.mark.parametrize("delimiter", ["\t", ";"])
def test_other_delimiters(fit, tmp_path, delimiter):
    assert fit("--quiet", data=write_csv(tmp_path / "other.csv", houses(30), delimiter)).code == 0


def test_more_columns_than_rows_and_huge_values(fit, tmp_path):
    generator = np.random.default_rng(0)
    lines = [[f"x{i}" for i in range(50)] + ["price"], *generator.normal(size=(30, 51)).tolist()]
    lines[4][7] = lines[9][7] = 1e30
    lines[6][8] = -1e30
    ended = fit(data=write_csv(tmp_path / "wide.csv", lines))
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "run" / "test_predictions.csv")
    assert np.isfinite([float(row["mean"]) for row in rows]).all()


def test_a_huge_target(fit, tmp_path):
    lines = houses(40)
    for line in lines[1:]:
        line[-1] = f"{float(line[-1]):.6g}e30"
    ended = fit(data=write_csv(tmp_path / "huge.csv", lines))
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "run" / "test_predictions.csv")
    assert all(1e29 < float(row["std"]) < 1e34 for row in rows)


def changed(change):
    lines = houses(40)
    change(lines)
    return lines


def set_cell(row, column, value):
    return lambda lines: lines[row].__setitem__(column, value)


def set_target(value):
    def change(lines):
        for line in lines[1:]:
            line[-1] = value

    return change


def keep(rows):
    return lambda lines: lines.__delitem__(slice(rows + 1, None))


@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [
        (keep(0), (), 1, "holds names, but no rows"),
        (keep(1), (), 1, "1 rows have a 'price'; at least 12 would work"),
        (keep(11), (), 1, "11 rows have a 'price'; at least 12 would work"),
        (set_target(""), (), 1, "no row has a 'price'"),
        (set_target("7"), (), 1, "--target: 'price' is 7.0 in every row; a column that differs would work"),
        (set_cell(3, 3, "much"), (), 1, "the column 'price' holds numbers, but 'much' in row 3"),
        (set_cell(3, 3, "inf"), (), 1, "the column 'price' holds 'inf' in row 3, which is infinite"),
        (set_cell(3, 0, "large"), (), 1, "the column 'area' holds numbers, but 'large' in row 3"),
        (set_cell(0, 1, "area"), (), 1, "the column 'area' is there twice; rename one"),
        (None, ("--target", "pirce"), 1, "--target: ", ),
        (None, ("--drop", "colour"), 1, "has no column 'colour'. It has area, age, town, price."),
        (None, ("--categorical", "twon"), 1, "--categorical: "),
        (None, ("--drop", "price"), 2, "--drop: 'price' is the target"),
        (None, ("--drop", "area", "--drop", "age", "--drop", "town"), 1, "has no column beside 'price'"),
        (None, ("--target", "town", "--task", "regression"), 1, "'town' holds text such as"),
        (None, ("--task", "classification"), 1, "'price' has 40 different values in 40 rows, too many to be classes"),
        (None, ("--target", "town", "--heteroscedastic"), 1, "--heteroscedastic: is for regression"),
        (None, ("--effective-batch-size", "frob"), 2, "--effective-batch-size: 'frob' was given; crps, nll, elbo or"),
        (None, ("--effective-batch-size", "nll"), 1, "effective_batch_size: 'nll' was given"),
        (None, ("--hidden", "50,x"), 2, "--hidden: '50,x' was given; units per hidden layer, such as 50,50"),
        (None, ("--test-fraction", "0.7"), 2, "--test-fraction: 0.7 was given; more than 0 and at most 0.5"),
        (None, ("--test-fraction", "0.001"), 1, "--test-fraction: 0.001 of 40 rows is none"),
        (None, ("--method", "magic"), 2, "Invalid value for '--method'"),
        (None, ("--seed", "-1"), 2, "Invalid value for '--seed'"),
        (None, ("--max-size", "0.0001"), 1, "MiB, more than 0.0001; fewer rows, or --max-size"),
    ],
)  # fmt: skip
def test_refuses(refuses, tmp_path, change, options, code, message):
    data = write_csv(tmp_path / "t.csv", changed(change or (lambda lines: None)))
    before = sorted(tmp_path.iterdir())
    target = () if "--target" in options else ("--target", "price")
    line = refuses("fit", data, *target, "--out", tmp_path / "run", "--quiet", *QUICK, *options, code=code)
    assert message in line
    assert sorted(tmp_path.iterdir()) == before


def test_a_name_that_is_nearly_right_is_suggested(refuses, table, tmp_path):
    line = refuses("fit", table, "--target", "pirce", "--out", tmp_path / "run")
    assert line.endswith("has no column 'pirce'; did you mean 'price'? It has area, age, town, price.\n")


def test_a_file_of_two_gibibytes_is_refused_unread(refuses, tmp_path):
    data = write_csv(tmp_path / "t.csv", houses(20))
    os.truncate(data, 2 * 2**30)
    assert "has 2,048 MiB, more than 1024" in refuses("fit", data, "--target", "price", "--out", tmp_path / "run")


def test_parquet_without_pyarrow(refuses, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    line = refuses("fit", tmp_path / "t.parquet", "--target", "a", "--out", tmp_path / "run")
    assert "Parquet files need pyarrow" in line


def test_parquet(fit, tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")
    import pandas as pd

    pd.read_csv(write_csv(tmp_path / "t.csv", houses(40))).to_parquet(tmp_path / "t.parquet")
    assert fit("--quiet", data=tmp_path / "t.parquet").code == 0


def test_a_run_is_replaced_only_when_told(fit, refuses, table, tmp_path):
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert fit("--quiet").code == 0
    (tmp_path / "run" / "mark").touch()
    assert "holds a run already; --force, or another name, would work" in refuses(*arguments)
    assert (tmp_path / "run" / "mark").exists()
    assert fit("--quiet", "--force").code == 0
    assert not (tmp_path / "run" / "mark").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv", "run"]


def test_what_is_no_run_is_never_replaced(refuses, table, tmp_path):
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "run", "--force", *QUICK)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    assert "is there and is no run; another name would work" in refuses(*arguments)
    (tmp_path / "run" / "thesis.txt").rename(tmp_path / "thesis.txt")
    (tmp_path / "run").rmdir()
    (tmp_path / "run").write_text("a file")
    assert "is there and is no run" in refuses(*arguments)


def test_an_empty_folder_may_become_the_run(fit, tmp_path, facts):
    (tmp_path / "run").mkdir()
    assert fit("--quiet").code == 0
    assert facts()["task"] == "regression"


def test_a_place_that_cannot_be_written_to(refuses, table, tmp_path, monkeypatch):
    arguments = ("fit", table, "--target", "price", *QUICK, "--out")
    assert "does not exist; make it first" in refuses(*arguments, tmp_path / "no" / "run")
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    assert "cannot be written to; another one would work" in refuses(*arguments, tmp_path / "run")


def test_a_failure_in_the_middle_leaves_nothing(refuses, table, tmp_path, monkeypatch):
    def full(self, path):
        path.write_text("part")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(tabular.BayesNormRegressor, "save", full)
    line = refuses("fit", table, "--target", "price", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert "No space left on device" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv"]


def test_what_killed_runs_left_is_cleaned_up(fit, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    prefix = f".run.partial-{socket.gethostname()}-"
    dead, living, foreign = f"{prefix}{ended.pid}", f"{prefix}{os.getppid()}", f".run.partial-elsewhere-{ended.pid}"
    for name in (dead, living, foreign):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bayesnorm").touch()
    assert fit("--quiet").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living, foreign, "houses.csv", "run"])


def test_a_run_whose_successor_was_killed_while_taking_its_place_comes_back(regression_run, refuses, table, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    shutil.copytree(regression_run.run, tmp_path / f".run.partial-{socket.gethostname()}-{ended.pid}-old")
    line = refuses("fit", table, "--target", "price", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert "holds a run already" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv", "run"]
    assert (tmp_path / "run" / "model.bayesnorm").exists()


def test_an_interrupted_fit_leaves_nothing(table, tmp_path):
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    arguments = ["fit", str(table), "--target", "price", "--out", str(tmp_path / "run"), "--epochs", "100000"]
    code = f"{start}from bayesnorm.cli import main; main({arguments!r})"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not list(tmp_path.glob(".run.partial-*")):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert told.endswith("interrupted\n")
    assert "Traceback" not in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv"]
