"""Permutation importance and partial dependence of models whose dependence on each column is known."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

import pandas as pd

from bayesnorm.cli.measured_influence import measure_influence
from bayesnorm.cli.options import Task
from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive
from bayesnorm.report import ColumnInfluence, Influence
from bayesnorm.report.influence import DependencePlot

GENERATOR = np.random.default_rng(0)
ROWS = 300
TABLE = pd.DataFrame(
    {
        "slope": GENERATOR.normal(size=ROWS),
        "unsure": GENERATOR.uniform(1, 2, ROWS),
        "idle": GENERATOR.normal(size=ROWS),
        "town": GENERATOR.choice(["Ede", "Oss"], ROWS).astype(object),
    }
)
KINDS = {"slope": "number", "unsure": "number", "idle": "number", "town": "category"}


class Linear:
    """Predicts 3 slope + 2 [town = Oss]; two samples lie `unsure` to either side, and the noise is 0.5."""

    def predict_dist(self, X):
        mean = 3 * X["slope"].to_numpy() + 2 * (X["town"] == "Oss").to_numpy()
        apart = X["unsure"].to_numpy()
        loc = torch.from_numpy(np.stack([mean - apart, mean + apart]))[..., None]
        return RegressionPredictive(loc, torch.full_like(loc, 0.5))


@pytest.fixture(scope="module")
def linear():
    y = 3 * TABLE["slope"].to_numpy() + 2 * (TABLE["town"] == "Oss").to_numpy() + GENERATOR.normal(0, 1.6, ROWS)
    return measure_influence(Linear(), TABLE, y, Task.regression, "price", KINDS)


def test_importance(linear):
    columns = {column.name: column for column in linear.columns}
    assert columns["idle"].error == columns["idle"].uncertainty == 0
    assert columns["slope"].error > columns["town"].error > 0.02
    assert columns["slope"].uncertainty == pytest.approx(0, abs=1e-9)
    # The mean absolute difference of two uniform numbers of width 1 is 1 / 3, and their mean is 1.5.
    error = 4 * 0.24 / np.sqrt(ROWS) / 1.5
    assert columns["unsure"].uncertainty == pytest.approx(1 / 3 / 1.5, abs=error)
    assert linear.words.startswith("If the values of slope are shuffled over 300 rows, the CRPS rises by ")
    assert linear.bars("uncertainty").title == "The uncertainty depends on unsure"


def test_dependence(linear):
    slope, town = (next(part for part in linear.dependence if part.name == name) for name in ("slope", "town"))
    assert np.diff(slope.mean) == pytest.approx(3 * np.diff(slope.values))
    assert dict(zip(town.values, town.mean, strict=True))["Oss"] == pytest.approx(
        dict(zip(town.values, town.mean, strict=True))["Ede"] + 2
    )
    unsure = next(part for part in linear.dependence if part.name == "unsure")
    assert unsure.epistemic == pytest.approx(unsure.values)
    assert unsure.total == pytest.approx(np.sqrt(np.square(unsure.values) + 0.25))
    plot = DependencePlot(town, "price", bands=True)
    assert "at “Ede” and" in plot.caption
    assert plot.caption.index("“Ede”") < plot.caption.index("“Oss”")


def test_classes():
    def predict_dist(X):
        log_odds = 2 * torch.tensor(X["slope"].to_numpy())
        return ClassificationPredictive(torch.stack([-log_odds / 2, log_odds / 2], 1).log_softmax(1)[None])

    model = SimpleNamespace(
        classes_=np.array(["no", "yes"]),
        predict_dist=predict_dist,
        proba_of=lambda predictive: predictive.probs.numpy(),
    )
    odds = 1 / (1 + np.exp(-2 * TABLE["slope"].to_numpy()))
    y = np.where(GENERATOR.random(ROWS) < odds, "yes", "no")
    result = measure_influence(model, TABLE, y, Task.classification, "kind", KINDS)
    assert result.output == "probability of “yes”"
    assert max(result.columns, key=lambda column: column.error).name == "slope"
    assert (np.diff(result.dependence[0].mean) > 0).all()
    assert [column.error for column in result.columns if column.name != "slope"] == [0, 0, 0]


def test_words_where_no_column_matters():
    columns = (ColumnInfluence("a", 0.001, 0.0), ColumnInfluence("b", -0.02, 0.0))
    influence = Influence("CRPS", 100, "y", "epistemic standard deviation", columns, ())
    assert influence.words == "Shuffling a single column hardly changes the CRPS of these predictions."
    assert influence.bars("error").title == "Predictions need no single column"


def test_too_many_columns_are_not_measured():
    wide = pd.DataFrame(np.zeros((5, 201)))
    assert measure_influence(Linear(), wide, np.zeros(5), Task.regression, "y", {}) is None


def test_it_is_part_of_the_report(regression_run):
    influence = json.loads((regression_run.run / "report.json").read_text())["influence"]
    assert [column["name"] for column in influence["columns"]] == ["area", "age", "town"]
    page = (regression_run.run / "report.html").read_text()
    assert "What drives predictions and their uncertainty?" in page
    assert "price by area" in page
