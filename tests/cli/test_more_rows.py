"""`fit` on tables whose noise is known: more rows are asked for where they would help, and only there."""

import json

import numpy as np
import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

from bayesnorm import report

from ..marks import takes_long
from .conftest import write_csv


@pytest.fixture(autouse=True)
def no_page(monkeypatch):
    """Drawing takes longer than all the rest."""
    monkeypatch.setattr(report, "write_report", lambda _content, path: path.write_text("no page"))


def fitted(bayesnorm, folder, y, x, *options):
    lines = [["a", "b", "c", "y"], *np.column_stack([x, y]).round(6).tolist()]
    data = write_csv(folder / "t.csv", lines)
    ended = bayesnorm("fit", data, "--target", "y", "--out", folder / "run", "--fast", "--epochs", 30, *options)
    assert ended.code == 0, ended.err
    facts = json.loads((folder / "run" / "run.json").read_text())
    return facts["summary"], json.loads((folder / "run" / "report.json").read_text())["curve"]


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(300, 3))


@takes_long
def test_pure_noise(bayesnorm, tmp_path, x):
    said, curve = fitted(bayesnorm, tmp_path, np.random.default_rng(1).normal(size=300), x)
    assert "So more rows like these would hardly help this kind of model." in said["Would more rows help?"]
    assert "Other columns might help" in said["Would more rows help?"]
    assert "Add columns that are related to y. More rows like these would hardly help." in said["Does it predict well?"]
    assert curve["rows"] == [96, 192]  # of 240, a fifth of which each network does not see


@takes_long
def test_a_function_without_noise(bayesnorm, tmp_path, x):
    said, curve = fitted(bayesnorm, tmp_path, np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2, x)
    assert "twice as many rows like these would lower the typical error from" in said["Would more rows help?"]
    assert "wice as many rows like these would lower the typical error" in said["Does it predict well?"]
    # The sentence begins with the error that the report tells.
    told = json.loads((tmp_path / "run" / "run.json").read_text())["scores"]["rmse"]
    assert curve["error"] == pytest.approx(told**2)


def test_classes(bayesnorm, tmp_path, x):
    coin = np.random.default_rng(2).integers(0, 2, 300)
    said, curve = fitted(bayesnorm, tmp_path, coin, x, "--task", "classification")
    assert "So more rows like these would hardly help" in said["Would more rows help?"]
    assert curve["measure"] == "Brier"


def test_too_few_rows_for_a_curve(regression_run):
    assert json.loads((regression_run.run / "report.json").read_text())["curve"] is None
    assert "Would more rows help?" not in json.loads((regression_run.run / "run.json").read_text())["summary"]
