"""`predict --quantiles`, `--sets` and `--cost`."""

import csv
import io
import json
from statistics import NormalDist

import numpy as np
import pytest

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

from bayesnorm.cli.decisions import least_probability

from .conftest import houses, write_csv


@pytest.fixture
def new(tmp_path):
    return write_csv(tmp_path / "new.csv", houses(40, seed=1))


def predicted(bayesnorm, run, data, *options):
    ended = bayesnorm("predict", run.run, data, "--digits", 17, *options)
    assert ended.code == 0, ended.err
    return list(csv.DictReader(io.StringIO(ended.out))), ended.err


def column(rows, name):
    return np.array([float(row[name]) for row in rows])


def test_quantiles_are_the_ends_of_intervals(bayesnorm, regression_run, new):
    rows, _ = predicted(bayesnorm, regression_run, new, "--quantiles", "0.05,0.5,0.95", "--level", 0.9)
    assert list(rows[0])[3:8] == ["lower", "upper", "q0.05", "q0.5", "q0.95"]
    assert np.allclose(column(rows, "q0.05"), column(rows, "lower"))
    assert np.allclose(column(rows, "q0.95"), column(rows, "upper"))
    half, _ = predicted(bayesnorm, regression_run, new, "--quantiles", "0.75", "--level", 0.5)
    assert np.allclose(column(half, "q0.75"), column(half, "upper"))
    # The median is between the others, and near the mean.
    assert (column(rows, "q0.05") < column(rows, "q0.5")).all()
    assert (column(rows, "q0.5") < column(rows, "q0.95")).all()
    near = np.abs(column(rows, "q0.5") - column(rows, "mean")) / column(rows, "std")
    assert near.max() < NormalDist().inv_cdf(0.75)


@pytest.mark.parametrize("level", [0.6, 0.9])
def test_sets_contain_the_true_class_as_often_as_promised(level):
    """Over many held-out sets, the coverage of new rows is at least the level, and at most 1 / (N + 1) more."""
    generator, inside, held_out = np.random.default_rng(0), [], 40
    for _ in range(400):
        logits = generator.normal(size=(held_out + 50, 3))
        probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        y = (generator.random((len(probs), 1)) > probs.cumsum(1)[:, :-1]).sum(1)
        sharp = probs**3 / (probs**3).sum(1, keepdims=True)  # far too sure, which does no harm
        least = least_probability(sharp[:held_out], y[:held_out], level)
        inside.append((sharp[held_out:][np.arange(50), y[held_out:]] >= least).mean())
    error = 4 * np.std(inside) / np.sqrt(len(inside))
    assert level - error <= np.mean(inside) <= level + 1 / (held_out + 1) + error


def test_sets_without_enough_rows_are_everything():
    assert least_probability(np.full((8, 2), 0.5), np.zeros(8, int), 0.9) == 0.0


def test_sets_of_classes(bayesnorm, classification_run, new):
    rows, _ = predicted(bayesnorm, classification_run, new, "--sets", "--level", 0.8)
    test = json.loads((classification_run.run / "report.json").read_text())["test"]
    least = least_probability(np.array(test["probs"]), np.array(test["y"]), 0.8)
    for row in rows:
        names = row["set"].split(" | ")
        assert row["predicted"] in names
        for name in ("Ede", "Oss", "Ulft"):
            assert (name in names) == (float(row[f"p({name})"]) >= least or name == row["predicted"])
    assert list(rows[0])[:3] == ["row", "predicted", "set"]


def test_the_class_with_the_lowest_expected_cost(bayesnorm, classification_run, new):
    rows, _ = predicted(bayesnorm, classification_run, new)
    costly, said = predicted(bayesnorm, classification_run, new, "--cost", "Ulft=5", "--cost", "Ede=2")
    probs = np.stack([column(rows, f"p({name})") for name in ("Ede", "Oss", "Ulft")], 1)
    best = (probs * [2, 1, 5]).argmax(1)
    assert [row["predicted"] for row in costly] == [("Ede", "Oss", "Ulft")[k] for k in best]
    assert (best != probs.argmax(1)).any()
    assert "The class with the lowest expected cost is predicted (--cost: Ede 2 and Ulft 5; others 1)." in said


def test_a_missed_row_of_the_rarer_of_two_classes(bayesnorm, fit, tmp_path):
    lines = [[*line, "kind"] if line[0] == "area" else [*line, "big" if float(line[0]) > 150 else "small"]
             for line in houses(60)]  # fmt: skip
    data = write_csv(tmp_path / "t.csv", lines)
    assert fit(data=data, target="kind").code == 0
    ended = bayesnorm("predict", tmp_path / "run", data, "--cost", "false-negative=9", "--digits", 17)
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert "“big” is predicted from a probability of 10.0 % on (--cost)." in ended.err
    assert [row["predicted"] == "big" for row in rows] == [float(row["p(big)"]) > 0.1 for row in rows]


def test_refuses(refuses, regression_run, classification_run, new):
    numbers, classes = regression_run.run, classification_run.run
    for run, options, code, message in (
        (numbers, ("--quantiles", "0.5,1"), 2, "--quantiles must be numbers between 0 and 1, such as 0.05,0.5,0.95"),
        (numbers, ("--quantiles", "half"), 2, "got 'half'"),
        (classes, ("--quantiles", "0.5"), 2, "--quantiles needs a target of numbers"),
        (numbers, ("--sets",), 2, "--sets needs a target of classes"),
        (numbers, ("--cost", "x=2"), 2, "--cost needs a target of classes"),
        (classes, ("--cost", "Paris=2"), 2, "--cost: 'Paris' is no class. Use Ede, Oss, Ulft."),
        (classes, ("--cost", "false-negative=2"), 2, "'false-negative' is no class"),
        (classes, ("--cost", "Ede=0"), 2, "--cost must be NAME=NUMBER with a positive number, got 'Ede=0'."),
        (classes, ("--cost", "Ede"), 2, "--cost must be NAME=NUMBER"),
    ):
        assert message in refuses("predict", run, new, *options, code=code)
