"""Which rows are held out: the last ones, or whole groups, and never some of a group on both sides."""

import csv

import numpy as np
import pytest

from bayesnorm.cli.held_out import RowOrder, hold_out
from bayesnorm.cli.options import Task
from bayesnorm.errors import InputError

from .conftest import houses, write_csv

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

Y = np.arange(40.0)


def held(y=Y, task=Task.regression, fraction=0.2, time=None, group=None):
    return hold_out(y, task, fraction, 0, time, group)


def test_the_last_rows_by_a_column():
    when = np.datetime64("2024-01-01", "s") - np.arange(40).astype("timedelta64[D]")
    when[3] = np.datetime64("NaT")
    result = held(time=RowOrder("sold", when))
    assert result.test.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert sorted([*result.train, *result.test]) == list(range(40))
    assert result.messages == (
        "The last 8 rows (by sold, from 2023-12-24 on) were held out.",
        "1 row without a value in sold was used for training.",
    )
    # Folds of the cross-validation are stretches of time: the first ones are the earliest.
    assert result.groups[result.train > 3].tolist() == sorted(result.groups[result.train > 3], reverse=True)
    assert np.bincount(result.groups).tolist() == [7, 6, 7, 6, 6]
    assert held(time=RowOrder("", Y)).messages == ("The last 8 rows of the file were held out.",)


def test_no_group_is_on_both_sides():
    labels = np.array(list("aaaaaaaabbbbbbbbccccccccddddddddeeeeeeef"))
    for seed in range(5):
        result = hold_out(Y, Task.regression, 0.2, seed, None, RowOrder("ward", labels))
        assert not {*labels[result.train]} & {*labels[result.test]}
        assert 1 <= len(result.test) <= 16
        assert result.groups.tolist() == labels[result.train].tolist()
        assert "by ward" in result.messages[0]
    with pytest.raises(InputError, match=r"--group: column 'ward' has 2 different values\. Use a column with at"):
        held(group=RowOrder("ward", np.array(["a", "b"] * 20)))


def test_classes_that_training_rows_lack_are_not_judged():
    y = np.array(["x", "y"] * 18 + ["z", "x", "y", "z"], dtype=object)
    result = held(y, Task.classification, 0.1, RowOrder("", Y))
    assert result.test.tolist() == [37, 38]
    assert result.messages[1] == "2 held-out rows of class 'z' were not tested, because no training row has this class."
    with pytest.raises(InputError, match="--target: no held-out row has a class that occurs in training"):
        held(np.sort(y), Task.classification, 0.05, RowOrder("", Y))


def test_from_the_command_line(bayesnorm, fit, facts, tmp_path, refuses):
    lines = houses(40)
    lines = [["day", *lines[0]], *([f"2024-02-{k % 28 + 1:02}", *line] for k, line in enumerate(lines[1:]))]
    data = write_csv(tmp_path / "t.csv", lines)
    ended = fit("--time", "day", data=data)
    assert ended.code == 0, ended.err
    assert "The last 8 rows (by day, from 2024-02-21 on) were held out." in ended.err
    assert facts()["warnings"][0].startswith("The last 8 rows")
    with (tmp_path / "run" / "test_predictions.csv").open() as file:
        assert {row["row"] for row in csv.DictReader(file)} == {str(row) for row in range(21, 29)}
    ended = fit("--group", "town", "--force", "--test-fraction", 0.3, data=data)
    assert ended.code == 0, ended.err
    assert "town was left out: it defines the groups (--group). (Use --keep town to include it.)" in ended.err
    assert "1 group of 3 by town" in ended.err
    assert [column["name"] for column in facts()["columns"]] == ["day", "area", "age"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--time", "town"), "--time: 'town' contains '"),
        (("--time", "price"), "--time: 'price' is the target"),
        (("--group", "twon"), "--group: "),
        (("--group", "town", "--holdout", "last"), "--group cannot be combined with --time or --holdout last"),
        (("--time", "age", "--holdout", "random"), "--time cannot be combined with --holdout random"),
    ],
)
def test_what_cannot_be_followed(fit, options, says):
    ended = fit(*options)
    assert ended.code in (1, 2)
    assert says in ended.err
