"""Rows unlike those of training, and why: what lies beyond is told before predictions go wrong."""

import json

import numpy as np
import pandas as pd
import pytest

from bayesnorm.errors import FileFormatError, InputError
from bayesnorm.tabular import BayesNormRegressor, load
from bayesnorm.tabular.preprocessing import Preprocessing
from bayesnorm.tabular.search_plan import folds_of_groups
from bayesnorm.tabular.unusual_rows import Likeness, Range, Ranges, reasons


def world(start, stop, rows, seed):
    """A trend that bends, another number, dates, and categories."""
    generator = np.random.default_rng(seed)
    t, x = np.linspace(start, stop, rows), generator.normal(size=rows)
    table = pd.DataFrame({"t": t, "x": x, "day": np.datetime64("2024-01-01", "s") + (86_400 * t).astype(int)})
    table["town"] = generator.choice(["Ede", "Oss"], rows)
    return table, 3 * np.sin(t / 6) + 0.02 * t**2 + x + generator.normal(0, 0.2, rows)


@pytest.fixture(scope="module")
def trained():
    quick = {"hidden": (16,), "epochs": 60, "weight_decay": 1e-3, "batch_size": 16, "folds": 3}
    return BayesNormRegressor(random_state=0, **quick).fit(*world(0, 60, 160, 0))


def test_rows_beyond_a_trend_are_flagged_before_intervals_fail(trained, tmp_path):
    def held_and_flagged(X, y):
        lower, upper = trained.predict_interval(X)
        return ((lower <= y) & (y <= upper)).mean(), trained.uncertainty(X)

    within, uncertainty = held_and_flagged(*world(0, 60, 200, 1))
    assert within > 0.8
    assert uncertainty["unusual"].mean() < 0.05
    beyond, uncertainty = held_and_flagged(*world(66, 150, 200, 2))
    assert beyond < 0.3
    assert uncertainty["unusual"].all()
    assert uncertainty["reason"].str.startswith("t above 60, the largest in training; ").all()
    assert uncertainty["reason"].str.contains("day after 2024-03-01, the latest in training").all()
    # A file keeps what is needed to say the same.
    trained.save(tmp_path / "model")
    again = load(tmp_path / "model").uncertainty(world(55, 90, 20, 2)[0])
    assert again["reason"].tolist() == trained.uncertainty(world(55, 90, 20, 2)[0])["reason"].tolist()


def test_each_row_has_one_reason_or_several_of_its_columns(trained):
    row = world(0, 60, 160, 0)[0].iloc[[80]]
    odd = pd.concat([row, row.assign(town="Ulft"), row.assign(x=None), row.assign(x=-9.0)])
    why = trained.uncertainty(odd)["reason"].tolist()
    assert why[:3] == [
        "",
        "town is 'Ulft', which does not occur in training",
        "x is missing, but was never missing in training",
    ]
    assert why[3].startswith("x below -2.")
    assert trained.drift(odd).unusual == 0.75


def test_rows_far_away_as_a_whole():
    generator = np.random.default_rng(0)
    a, c = generator.normal(size=(2, 200))
    X = pd.DataFrame({"a": a, "c": c, "b": a + generator.normal(0, 0.01, 200)})
    preprocessing, folds = Preprocessing.fit(X), np.split(np.arange(200), 5)
    likeness = Likeness.fit(preprocessing.transform(X), folds)
    new = pd.DataFrame({"a": [1.0, 1.0], "c": [0.0, 0.0], "b": [1.0, -1.0]})
    table = preprocessing.read(new)
    result = reasons(preprocessing, likeness, Ranges.fit(preprocessing.read(X).values), table)
    assert result in (["", f"far from all training rows, mainly because of {both}"] for both in ("a and b", "b and a"))


def test_few_rows_reach_farther_by_chance():
    values = np.array([1.0, 2.0, 3.0, 4.0, 9.0, np.nan])
    (limits, none), words = Ranges.fit([values, np.full(6, np.nan)]).columns, np.array(["a"] * 6, dtype=object)
    assert (limits.low, limits.high, none) == (1.0, 9.0, None)
    assert limits.outside_above(np.array([9.5, 1e308, np.nan])).tolist() == [False, True, False]
    assert Ranges.fit([words]).columns == (None,)
    ranges = Ranges((limits, None))
    assert Ranges.from_config(json.loads(json.dumps(ranges.config())), 2) == ranges
    for bad in ([], [None], [{"low": 2.0, "high": 1.0, "margin": 0.0}, None], [{"low": 1.0, "high": 2.0}, None]):
        with pytest.raises(FileFormatError):
            Ranges.from_config(bad, 2)
    assert Range(0.0, 1.0, 0.0, 0.5).outside_below(np.array([-0.1, 0.0])).tolist() == [True, False]
    assert Range(0.0, 1.0, 0.0, 0.5).outside_above(np.array([1.4, 1.6])).tolist() == [False, True]


@pytest.mark.parametrize("seed", range(3))
def test_each_side_has_its_own_margin(seed):
    """Square metres in place of square feet: a long tail of large houses does not hide that all are too small."""
    generator = np.random.default_rng(seed)
    feet = np.exp(generator.normal(7.4, 0.35, 400))
    feet[:4] *= 6  # a few palaces
    limits = Range.fit(feet)
    metres = np.exp(generator.normal(7.4, 0.35, 1000)) / 10.764
    assert limits.outside_below(metres).mean() > 0.9
    new = np.exp(generator.normal(7.4, 0.35, 1000))
    assert (limits.outside_below(new) | limits.outside_above(new)).mean() < 0.01
    assert limits.outside_below(metres[:1]).all()  # a value by itself is judged too


def test_what_is_never_negative_may_not_become_negative():
    counts = np.random.default_rng(0).poisson(2, 300).astype(float)
    assert Range.fit(counts).outside_below(np.array([-1.0, 0.0])).tolist() == [True, False]


@pytest.mark.parametrize(("rows", "most"), [(50, 0.05), (200, 0.02), (2000, 0.004)])
def test_rows_of_the_training_distribution_are_seldom_outside(rows, most):
    generator, rates = np.random.default_rng(0), []
    for _ in range(10):
        limits = [Range.fit(np.exp(generator.normal(size=rows))) for _ in range(8)]
        new = np.exp(generator.normal(size=(500, 8)))
        outside = [one.outside_below(x) | one.outside_above(x) for one, x in zip(limits, new.T, strict=True)]
        rates.append(np.any(outside, axis=0).mean())
    assert np.mean(rates) < most


def test_folds_keep_groups_together():
    groups = np.repeat(np.arange(7), [1, 9, 3, 3, 2, 8, 4])
    folds = folds_of_groups(groups, 5, np.random.default_rng(0))
    assert sorted(np.concatenate(folds)) == list(range(30))
    assert all(len({*groups[a]} & {*groups[b]}) == 0 for a in folds for b in folds if a is not b)
    assert max(map(len, folds)) == 9
    assert len(folds_of_groups(np.array([0, 1, 1]), 5, np.random.default_rng(0))) == 2


def test_groups_reach_the_folds():
    X, y = world(0, 60, 40, 0)
    quick = {"hidden": (4,), "epochs": 1, "weight_decay": 1e-3, "batch_size": 8, "folds": 3}
    groups = np.repeat(list("abcd"), 10)
    fitted = BayesNormRegressor(random_state=0, **quick).fit(X, y, groups=groups)
    result = fitted.selection_.out_of_fold
    assert all(len(set(result.fold[groups == group])) == 1 for group in "abcd")
    for bad, says in ((groups[:5], "Pass one label per row"), (["a"] * 40, "groups has only one group, 'a'")):
        with pytest.raises(InputError, match=says):
            BayesNormRegressor(**quick).fit(X, y, groups=bad)
