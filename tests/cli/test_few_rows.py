"""Few rows are judged by cross-validation: each by networks that did not see it."""

import csv
import json

import numpy as np
import pytest
import torch

from .conftest import QUICK, houses, write_csv

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from bayesnorm.predictive import RegressionPredictive
from bayesnorm.tabular.intervals import FoldLevels, IntervalLevels, OutOfFold


@pytest.mark.parametrize("target", ["price", "town"])
def test_all_of_few_rows_judge(bayesnorm, tmp_path, monkeypatch, target):
    monkeypatch.setattr("bayesnorm.report.write_report", lambda _, path: path.touch())
    data = write_csv(tmp_path / "t.csv", houses(30))
    ended = bayesnorm("fit", data, "--target", target, "--out", tmp_path / "run", *QUICK[:4])
    assert ended.code == 0, ended.err
    assert "30 rows are too few for a held-out set. The model is tested by cross-validation instead." in ended.err
    assert "30 for training, each held out once in cross-validation" in ended.out
    assert "Next: " in ended.out
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["rows"] == {"training": 30, "test": 30, "cross_validated": True}
    assert json.loads((tmp_path / "run" / "report.json").read_text())["table"]["cross_validated"] is True
    with (tmp_path / "run" / "test_predictions.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert sorted(int(row["row"]) for row in rows) == list(range(1, 31))
    if target == "price":
        y, mean = (np.array([float(row[name]) for row in rows]) for name in ("y", "mean"))
        assert np.sqrt(((y - mean) ** 2).mean()) == pytest.approx(facts["scores"]["rmse"], rel=1e-3)


@pytest.mark.parametrize("more", [(), ("--group", "town"), ("--holdout", "last")])
def test_all_rows_are_learned_from_on_request(bayesnorm, tmp_path, monkeypatch, more):
    monkeypatch.setattr("bayesnorm.report.write_report", lambda _, path: path.touch())
    data = write_csv(tmp_path / "t.csv", houses(160))
    options = ("--target", "price", "--out", tmp_path / "run", *QUICK[:4], "--test-fraction", 0, *more)
    ended = bayesnorm("fit", data, *options)
    assert ended.code == 0, ended.err
    assert "The model learns from all 160 rows. The report uses cross-validation." in ended.err
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["rows"] == {"training": 160, "test": 160, "cross_validated": True}


def test_conformal_intervals_need_held_out_rows(bayesnorm, tmp_path):
    data = write_csv(tmp_path / "t.csv", houses(30))
    options = ("--target", "price", "--out", tmp_path / "run", *QUICK[:4], "--test-fraction", 0, "--conformal")
    ended = bayesnorm("fit", data, *options)
    assert ended.code != 0
    assert "--conformal needs held-out rows" in ended.err


def test_intervals_of_a_fold_come_from_the_others():
    generator = torch.Generator().manual_seed(0)
    loc, y = torch.zeros(1, 400, 1, dtype=torch.float64), torch.randn(400, 1, dtype=torch.float64, generator=generator)
    fold = np.repeat([0, 1], 200)
    y[:200] *= 2  # the other fold cannot know that
    held_out = OutOfFold(np.arange(400), fold, y.numpy(), None, RegressionPredictive(loc, torch.ones_like(loc)))
    levels = FoldLevels.fit(held_out)
    lower, upper = levels.interval(held_out.predictive, 0.9)
    inside = ((lower <= y) & (y <= upper)).numpy()[:, 0]
    assert inside[:200].mean() < 0.7 < 0.99 < inside[200:].mean()
    plain = IntervalLevels.fit(held_out.predictive, held_out.target, None)
    assert 0.89 < np.mean((plain.interval(held_out.predictive, 0.9)[1] >= y.abs()).numpy()) < 0.92
    ranks = held_out.predictive.cdf(y).numpy()
    assert np.allclose(np.abs(levels.transform(ranks) - 0.5)[:, 0] <= 0.45, inside)
