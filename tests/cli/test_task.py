"""What is to be predicted, and which rows are held out."""

from pathlib import Path

import numpy as np
import pytest

from bayesnorm.cli.held_out import random_split
from bayesnorm.cli.inputs_and_targets import guess_task, learnable_targets
from bayesnorm.cli.options import Task
from bayesnorm.errors import InputError


def test_guess():
    for values, kind, task in (
        (np.linspace(0, 1, 50), "number", "regression"),
        (np.arange(50.0), "number", "regression"),
        (np.arange(50.0) % 3, "number", "classification"),
        (np.arange(20.0) % 10, "number", "regression"),
        (np.array([0.5, 1.5] * 10), "number", "classification"),
        (np.array([0.5, 1.5, 2.5] * 10), "number", "regression"),
        (np.array(["a", "b"] * 10, dtype=object), "category", "classification"),
    ):
        guess, reason = guess_task("y", values, kind)
        assert guess == task
        assert reason.startswith("y ")


@pytest.mark.parametrize("task", list(Task))
def test_split_is_a_partition_of_the_wanted_size(task):
    y = np.arange(101) % 4
    train, test = random_split(y, 0.2, 0, task)
    assert len(test) == 20
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(101))
    again = random_split(y, 0.2, 0, task)[1]
    assert np.array_equal(test, again)
    assert not np.array_equal(test, random_split(y, 0.2, 1, task)[1])


def test_classes_are_spread_evenly_and_never_only_in_the_test():
    y = np.array(["common"] * 60 + ["rare"] * 10 + ["pair"] * 2 + ["single"])
    for seed in range(20):
        train, test = random_split(y, 0.5, seed, Task.classification)
        assert set(y[test]) <= set(y[train])
        assert abs((y[test] == "rare").sum() - 5) <= 1
        assert "single" not in y[test]


def test_numbers_as_classes():
    for values, labels in (([1.0, 2.0], [1, 2]), ([0.5, 1.5], ["0.5", "1.5"]), ([1e30, 2e30], ["1e+30", "2e+30"])):
        result = learnable_targets(Path("t.csv"), "y", np.array(values * 10), "number", Task.classification)
        assert result[:2].tolist() == labels


def test_a_target_too_large_for_scores_is_refused_before_any_training():
    values = np.r_[np.arange(20.0), 1.7e308]
    with pytest.raises(InputError, match=r"'y' contains 1.7e\+308, but the largest accepted number is 1e\+100"):
        learnable_targets(Path("t.csv"), "y", values, "number", Task.regression)
