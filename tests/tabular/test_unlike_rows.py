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
    result = reasons(preprocessing, likeness, Ranges.fit(preprocessing.read(X).values, folds), table)
    assert result in (["", f"far from all training rows, mainly because of {both}"] for both in ("a and b", "b and a"))


def test_few_rows_reach_farther_by_chance():
    values, folds = np.array([1.0, 2.0, 3.0, 4.0, 9.0, np.nan]), [np.array([0, 4]), np.array([1, 2, 3, 5])]
    (limits, none), words = Ranges.fit([values, np.full(6, np.nan)], folds).columns, np.array(["a"] * 6, dtype=object)
    assert (limits.low, limits.high, none) == (1.0, 9.0, None)
    assert limits.above(np.array([9.5, 1e308, np.nan])).tolist() == [False, True, False]
    assert Ranges.fit([words], folds).columns == (None,)
    ranges = Ranges((limits, None))
    assert Ranges.from_config(json.loads(json.dumps(ranges.config())), 2) == ranges
    for bad in ([], [None], [{"low": 2.0, "high": 1.0, "margin": 0.0}, None], [{"low": 1.0, "high": 2.0}, None]):
        with pytest.raises(FileFormatError):
            Ranges.from_config(bad, 2)
    assert Range(0.0, 1.0, 0.0).below(np.array([-0.1, 0.0])).tolist() == [True, False]


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
