"""New rows against training rows, by the estimators: columns, network, and moving with them."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

import bayesnorm as bn
from bayesnorm import files
from bayesnorm.errors import BayesNormError, FileFormatError, InputError
from bayesnorm.posterior import AdaptedPosterior
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, load
from bayesnorm.tabular.preprocessing import CategoricalColumn, NumericColumn
from bayesnorm.tabular.table_drift import column_drift
from bayesnorm.tabular.training_columns import CategoryCounts, NumberCounts, TrainingColumns

from .conftest import QUICK


def table(rows, seed, *, size=50.0, missing=0.1, towns=("ash", "birch", "elm"), fixed=3.0):
    """Rows of one world, or of another where an argument is given."""
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": np.where(generator.random(rows) < missing, np.nan, generator.normal(size, 20, rows)),
            "town": pd.Series(generator.choice(towns, rows), dtype=object),
            "grade": generator.integers(1, 4, rows),
            "fixed": np.full(rows, fixed),
            "noise": generator.normal(size=rows),
        }
    )


def target(X):
    return X["size"].fillna(50).to_numpy() / 20 + X["grade"].to_numpy() + 2 * (X["town"] == "elm").to_numpy()


def fitted(method):
    X = table(300, 0)
    return BayesNormRegressor(**QUICK | {"samples": 64}, method=method).fit(X, target(X))


@pytest.fixture(scope="module")
def model():
    return fitted("mcbn")


@pytest.fixture(scope="module")
def plain():
    return fitted("dropout")


def moved(result):
    return {column.name for column in result.moved}


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"size": 85.0}, "size"),
        ({"missing": 0.6}, "size"),
        ({"towns": ("ash", "birch", "birch", "birch", "yew")}, "town"),
        ({"fixed": 2.9}, "fixed"),
    ],
)
def test_the_column_that_moved_is_named(model, change, column):
    comparison = model.drift(table(60, 1, **change))
    assert comparison.drifted
    assert moved(comparison) == {column}
    assert comparison.rows == 60
    assert comparison.network is not None


def test_how_far(model):
    size, town, grade, *_ = model.drift(table(200, 2, size=90.0, towns=("ash", "yew"))).columns
    assert size.median[0] == pytest.approx(50, abs=5)
    assert size.median[1] == pytest.approx(90, abs=5)
    assert size.shift == pytest.approx(2, abs=0.4)
    assert size.spread_ratio == pytest.approx(1, abs=0.3)
    assert sum(size.training_shares) == pytest.approx(1)
    assert sum(size.new_shares) == pytest.approx(1)
    assert town.new_categories == ("yew",)
    assert town.new_share == pytest.approx(0.5, abs=0.15)
    assert {name: now for name, _, now in town.shares}["elm"] == 0
    assert not grade.moved
    assert [name for name, *_ in grade.shares] == ["1", "2", "3"]


def test_rows_of_the_same_world_alarm_rarely(plain):
    results = [plain.drift(table(n, 1000 + k)) for n in (1, 5, 30) for k in range(40)]
    assert (
        sum(comparison.drifted for comparison in results) <= 13
    )  # 6 expected at most; more than 13 have a chance of .3 %
    assert all(
        comparison.drifted == bool(comparison.moved) for comparison in results
    )  # with columns alone, one is the other


def test_columns_and_network_share_one_false_alarm(model):
    results = [model.drift(table(30, 2000 + k)) for k in range(80)]
    assert sum(comparison.drifted for comparison in results) <= 10
    assert not any(comparison.moved and not comparison.drifted for comparison in results)


def test_names_that_never_repeat_do_not_count_as_moved():
    ids = [f"{number:05}" for number in range(600)]
    column = CategoricalColumn.fit("id", np.array(ids[:300], dtype=object))
    counts = CategoryCounts.fit(np.array(ids[:300], dtype=object))
    result = column_drift(column, counts, np.array(ids[300:], dtype=object))
    assert result.p_value == 1.0
    assert result.new_share == 1.0


def test_odd_columns():
    for training, new in (
        (np.r_[np.zeros(280), np.arange(20.0)], np.zeros(30)),
        (np.full(50, np.nan), np.arange(20.0)),
        (np.arange(50.0), np.full(20, np.nan)),
        (np.arange(50.0), np.array([1e305])),
        (1e-310 * np.arange(50), np.zeros(5)),
        (np.arange(50.0) % 3, np.array([1.5, 7.0, -3.0, 0.0])),
        (np.ones(50), np.ones(9)),
    ):
        result = column_drift(NumericColumn.fit("odd", training), NumberCounts.fit(training), new)
        assert 0 < result.p_value <= 1
        for shares in (
            result.training_shares,
            result.new_shares,
            *zip(*(comparison[1:] for comparison in result.shares), strict=True),
        ):
            assert not shares or sum(shares) == pytest.approx(1)
        assert len({name for name, *_ in result.shares}) == len(result.shares)


def test_a_network_without_batch_statistics_is_left_out_and_says_so(plain):
    comparison = plain.drift(table(60, 1, size=85.0))
    assert comparison.network is None
    assert comparison.without_network == "method 'dropout' has no batch statistics to compare"
    assert moved(comparison) == {"size"}
    with pytest.raises(BayesNormError, match=r"method='dropout' has none. Fit with method mcbn, gaussian or"):
        plain.adapt(table(60, 1))


def test_too_few_batches_leave_columns(line, quick, monkeypatch):
    X, y = line
    monkeypatch.setattr("bayesnorm.tabular.choosing.STATES", 4)
    comparison = BayesNormRegressor(**quick).fit(X, y).drift(X + 9)
    assert comparison.network is None
    assert "has no record of how training batches vary" in comparison.without_network
    assert [column.name for column in comparison.moved] == ["column 0", "column 1"]


def test_one_row_of_a_table_that_never_varies_is_like_the_others():
    X = pd.DataFrame({"same": np.ones(60)})
    model = BayesNormRegressor(**QUICK).fit(X, np.arange(60.0))
    assert not model.drift(X[:1]).drifted
    assert model.drift(X[:1] + 1).drifted


def test_what_is_wrong_with_the_network_is_no_reason_to_leave_it_out(model):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        next(broken.posterior_.members[1].model.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="NaN or infinite"):
        broken.drift(table(60, 1))


def test_adapted(model, tmp_path):
    new = table(120, 3, size=90.0)
    before = model.predict(new)
    adapted = model.adapt(new)
    assert all(isinstance(member, AdaptedPosterior) for member in adapted.posterior_.members)
    assert not any(isinstance(member, AdaptedPosterior) for member in model.posterior_.members)
    np.testing.assert_array_equal(model.predict(new), before)
    assert np.abs(adapted.predict(new) - before).max() > 0.1
    assert adapted.drift(new).network.p_value > model.drift(new).network.p_value
    assert adapted.get_params() == model.get_params()
    assert adapted.interval_levels_ is model.interval_levels_
    np.testing.assert_array_equal(model.adapt(new, strength=0.0).predict(new), before)
    adapted.save(tmp_path / "adapted")
    for again in (load(tmp_path / "adapted"), pickle.loads(pickle.dumps(adapted))):
        np.testing.assert_array_equal(again.predict(new), adapted.predict(new))
        assert again.drift(new).p_value == pytest.approx(adapted.drift(new).p_value)


def test_classes_too(line, quick):
    X, y = line
    model = BayesNormClassifier(**quick | {"samples": 16}).fit(X, y > 5)
    assert not model.drift(X).drifted
    assert model.drift(X + 3).drifted
    assert model.adapt(X + 3).classes_.tolist() == [False, True]


@pytest.mark.parametrize("name", ["training_columns", "ranges"])
def test_a_file_of_an_earlier_version_is_refused(model, tmp_path, name):
    model.save(tmp_path / "model")
    tensors, config = files.read(tmp_path / "model")
    config.pop(name)
    files.write(tmp_path / "model", tensors, config)
    with pytest.raises(FileFormatError, match=r"of an earlier version\. Fit the model again\.$"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda columns: columns.pop(),
        lambda columns: columns[0].update(edges=[2.0, 1.0]),
        lambda columns: columns[0]["counts"].append(1),
        lambda columns: columns[0].update(counts={}),
        lambda columns: columns[1].update(counts={"ash": -1}),
    ],
)
def test_damaged_counts_are_refused(model, spoil):
    config = json.loads(json.dumps(model.training_columns_.config()))
    TrainingColumns.from_config(config, model.preprocessing_)
    spoil(config)
    with pytest.raises(FileFormatError):
        TrainingColumns.from_config(config, model.preprocessing_)


def test_the_network_is_asked_as_bn_drift_asks(model):
    new = table(50, 5)
    features = model.preprocessing_.transform(new).astype(np.float32).astype(np.float64)
    assert model.drift(new).network.p_value == bn.drift(model.posterior_, features).p_value
