"""`bayesnorm fit`: what it writes and says, and every option."""

import csv
import hashlib
import json
import sys

import numpy as np
import pytest

from bayesnorm.predictive import RegressionPredictive

from .conftest import houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
tabular = pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")


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
    assert np.sqrt(((y - mean) ** 2).mean()) == pytest.approx(facts["scores"]["rmse"], rel=1e-3)
    inside = [float(row["lower"]) <= float(row["y"]) <= float(row["upper"]) for row in rows]
    assert np.mean(inside) == pytest.approx(facts["scores"]["coverage"])
    # Row numbers are those of the file.
    prices = [line[-1] for line in houses(80)]
    assert [float(prices[int(row["row"])]) for row in rows] == [float(row["y"]) for row in rows]


def test_the_one_error_bar_comes_from_rows_that_were_held_out_in_training(fit, tmp_path, monkeypatch):
    models = []
    save = tabular.BayesNormRegressor.save
    monkeypatch.setattr(tabular.BayesNormRegressor, "save", lambda self, path: models.append(self) or save(self, path))
    assert fit("--quiet", "--members", 5).code == 0
    honest = models[0].selection_.out_of_fold
    errors = honest.target.reshape(-1) - honest.predictive.mean.numpy().reshape(-1)
    bar = json.loads((tmp_path / "run" / "report.json").read_text())["test"]["constant_std"]
    assert 0.6 < bar / np.sqrt((errors**2).mean()) < 1.1  # what CRPS asks for is near the errors' own size


def test_units_of_the_target_change_no_judgement(fit, facts, short_run, tmp_path):
    expected = json.loads((short_run.run / "run.json").read_text())["scores"]
    for unit in (1e-9, 1e9):
        lines = houses(40)
        for line in lines[1:]:
            line[-1] = repr(unit * float(line[-1]))
        assert fit("--quiet", "--force", data=write_csv(tmp_path / "t.csv", lines)).code == 0
        scores = {name: value / (unit if name in ("rmse", "crps") else 1) for name, value in facts()["scores"].items()}
        scores["pll"] += np.log(unit)
        assert scores == pytest.approx(expected, rel=1e-4)


def test_quiet_says_nothing_and_held_out_rows_are_predicted_once(fit, monkeypatch):
    asked = []
    plain = tabular.BayesNormRegressor.predict_with_uncertainty
    monkeypatch.setattr(
        tabular.BayesNormRegressor, "predict_with_uncertainty", lambda self, X: asked.append(len(X)) or plain(self, X)
    )
    intervals = []
    interval = RegressionPredictive.interval
    monkeypatch.setattr(
        RegressionPredictive,
        "interval",
        lambda self, *arguments: intervals.append(len(self.mean)) or interval(self, *arguments),
    )
    ended = fit("--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert asked == intervals == [8]


def test_what_a_regression_says(regression_run):
    assert (
        "Task: regression, because price is numeric with 80 different values (use --task to override)."
        in regression_run.err
    )
    assert "Training on 64 rows, with 16 rows held out." in regression_run.err
    assert "Are its error bars honest?" in regression_run.out


def test_what_a_classification_leaves_and_says(classification_run):
    run = classification_run.run
    facts = json.loads((run / "run.json").read_text())
    assert (facts["task"], facts["classes"]) == ("classification", ["Ede", "Oss", "Ulft"])
    rows = rows_of(run / "test_predictions.csv")
    right = [row["predicted"] == row["y"] for row in rows]
    assert np.mean(right) == pytest.approx(facts["scores"]["accuracy"])
    assert all(abs(sum(float(row[f"p({name})"]) for name in facts["classes"]) - 1) < 2e-4 for row in rows)
    assert "Task: classification, because town is text with 3 different values" in classification_run.err


def test_the_page(regression_run):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install jinja2")
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
    page = (regression_run.run / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "price from table.csv" in page
    assert "--target price" in page


def test_the_same_seed_gives_the_same_model(fit, short_run, tmp_path):
    expected = (short_run.run / "test_predictions.csv").read_text()
    for seed, same in ((0, True), (4, False)):
        assert fit("--seed", seed, "--force", "--quiet").code == 0
        assert ((tmp_path / "run" / "test_predictions.csv").read_text() == expected) is same


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


def test_noise_members_effective_batch_size_and_one_setting_on_the_device_that_is_named(
    fit, facts, short_run, tmp_path
):
    options = ("--homoscedastic", "--effective-batch-size", "17.5", "--members", 3, "--fast", "--device", "auto")
    assert fit(*options, "--quiet").code == 0
    model = tabular.load(tmp_path / "run" / "model.bayesnorm")
    assert model.heteroscedastic is False
    assert model.effective_batch_size == 17.5
    assert len(model.posterior_.members) == 3
    rows = rows_of(tmp_path / "run" / "test_predictions.csv")
    assert len({row["aleatoric_std"] for row in rows}) == 1
    assert "--homoscedastic" in facts()["command"]
    assert len({row["aleatoric_std"] for row in rows_of(short_run.run / "test_predictions.csv")}) > 1
    tried = [
        len(json.loads((run / "report.json").read_text())["choice"]["settings"])
        for run in (short_run.run, tmp_path / "run")
    ]
    assert tried[1] == 1 < tried[0]
    assert (model.fast, model.device) == (True, "auto")
    assert (facts()["settings"]["fast"], facts()["settings"]["device"]) == (True, "auto")


def test_task_overrides_the_guess(fit, facts, table):
    ended = fit("--task", "regression", "--drop", "price", target="age")
    assert ended.code == 0
    assert "use --task to override" not in ended.err
    assert facts()["task"] == "regression"


def test_max_rows(fit, facts):
    ended = fit("--max-rows", 30)
    assert "30 of 40 rows were sampled at random (--max-rows)." in ended.err
    assert facts()["rows"] == {"training": 24, "test": 6}
    assert facts()["warnings"] == ["30 of 40 rows were sampled at random (--max-rows)."]


def test_without_what_reports_need(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    ended = fit()
    assert ended.code == 0
    assert "pip install jinja2 matplotlib" in ended.out
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


@pytest.mark.filterwarnings("default:The networks use")
def test_more_columns_than_rows_and_huge_values(fit, tmp_path):
    generator = np.random.default_rng(0)
    lines = [[f"x{i}" for i in range(50)] + ["price"], *generator.normal(size=(30, 51)).tolist()]
    lines[4][7] = lines[9][7] = 1e30
    lines[6][8] = -1e30
    ended = fit(data=write_csv(tmp_path / "wide.csv", lines), page=True)
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "run" / "test_predictions.csv")
    assert np.isfinite([float(row["mean"]) for row in rows]).all()


def test_a_huge_target(fit, tmp_path):
    lines = houses(40)
    for line in lines[1:]:
        line[-1] = f"{float(line[-1]):.6g}e30"
    ended = fit(data=write_csv(tmp_path / "huge.csv", lines), page=True)
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "run" / "test_predictions.csv")
    assert all(1e29 < float(row["std"]) < 1e34 for row in rows)


def test_every_method_of_the_estimators_is_offered_and_explained():
    from bayesnorm.cli.options import METHOD_DESCRIPTIONS, UncertaintyMethod
    from bayesnorm.tabular.networks import METHODS

    assert tuple(UncertaintyMethod) == METHODS
    assert all("the epistemic uncertainty comes from" in METHOD_DESCRIPTIONS[method] for method in UncertaintyMethod)
