"""`fit --weight`: rows of weight 0 have no influence, and the column is no input."""

import json

import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

from bayesnorm import tabular

from .conftest import houses, write_csv


def weighted(lines, weights):
    return [[*lines[0], "weight"], *([*line, weight] for line, weight in zip(lines[1:], weights, strict=True))]


def test_rows_without_weight_have_no_influence(fit, facts, tmp_path):
    lines = houses(60)
    weights = [0 if row % 5 == 0 else 1 + row % 3 for row in range(60)]
    wrong = [list(line) for line in lines]
    for row, weight in enumerate(weights, 1):
        if weight == 0:
            wrong[row][3] = 99_999  # a price that would spoil every model
    assert fit("--weight", "weight", data=write_csv(tmp_path / "t.csv", weighted(wrong, weights))).code == 0
    assert [column["name"] for column in facts()["columns"]] == ["area", "age", "town"]
    assert facts()["left_out"] == {"weight": "holds the weights of rows (--weight)"}
    model = tabular.load(tmp_path / "run" / "model.bayesnorm")
    predicted = json.loads((tmp_path / "run" / "report.json").read_text())["test"]["mean"]
    assert max(map(abs, predicted)) < 5_000
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("weights", [[-1] + [1] * 39, [""] + [1] * 39, [0] * 40, ["a", "b"] * 20])
def test_refuses(refuses, tmp_path, weights):
    data = write_csv(tmp_path / "t.csv", weighted(houses(40), weights))
    options = ("fit", data, "--target", "price", "--out", tmp_path / "run", "--weight", "weight")
    assert "--weight: 'weight' must have a number of 0 or more in every row" in refuses(*options)
    assert "--weight: 'price' is the target" in refuses(*options[:-1], "price", code=2)
