"""`bayesnorm compare`: which of two runs is better on the rows that both were tested on."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

from bayesnorm.cli.run_folder import json_value
from bayesnorm.cli.stored_report import report_from_values

from ..sealed_runs import seal


def altered(run, folder, change):
    """A copy of a run whose test is changed."""
    copy = shutil.copytree(run, folder)
    content = report_from_values(json.loads((copy / "report.json").read_text()))
    (copy / "report.json").write_text(json.dumps(json_value(change(content))))
    seal(copy)
    return copy


def test_a_better_and_an_equal_run(bayesnorm, short_run, regression_run, tmp_path):
    def perfect(report):
        test = report.test
        return dataclasses.replace(report, test=dataclasses.replace(test, mean=test.y, std=test.std / 100))

    better = altered(regression_run.run, tmp_path / "better", perfect)
    ended = bayesnorm("compare", regression_run.run, better, "--json")
    told = json.loads(ended.out)
    report = report_from_values(json.loads((regression_run.run / "report.json").read_text()))
    ours = report.test.crps_points()
    theirs = perfect(report).test.crps_points()
    result = told["common_rows"]
    assert result["rows"] == len(ours) == 16
    assert result["difference"] == pytest.approx(np.mean(theirs - ours))
    assert result["standard_error"] == pytest.approx(np.std(theirs - ours, ddof=1) / 4)
    assert told["scores"][str(better)]["rmse"] == pytest.approx(0, abs=1e-9)
    words = " ".join(bayesnorm("compare", regression_run.run, better).out.split())
    assert f"{better} is better. On the same 16 held-out rows, its CRPS is" in words
    same = " ".join(bayesnorm("compare", regression_run.run, regression_run.run).out.split())
    assert "On the same 16 held-out rows, the difference may be chance" in same
    other = " ".join(bayesnorm("compare", regression_run.run, short_run.run).out.split())
    assert "were trained on different files, so their scores cannot be compared row by row" in other


def test_classes(bayesnorm, classification_run):
    told = json.loads(bayesnorm("compare", classification_run.run, classification_run.run, "--json").out)
    assert told["common_rows"]["difference"] == 0
    assert set(told["scores"][str(classification_run.run)]) == {"nll", "auc", "brier", "accuracy", "ece"}


def test_refuses(refuses, regression_run, classification_run, tmp_path):
    line = refuses("compare", regression_run.run, classification_run.run, code=2)
    assert "predicts 'town' (classification), but" in line
    assert "Compare runs with the same target." in line
    assert "is not a run" in refuses("compare", regression_run.run, tmp_path)
