"""Tables of polars and Arrow give the same models and predictions as those of pandas."""

import datetime
import types

import numpy as np
import pandas as pd
import pytest

from bayesnorm.errors import InputError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor
from bayesnorm.tabular.data_frames import as_pandas

from .conftest import QUICK

ROWS = 60


def columns():
    """Return columns of every kind, with missing values, as lists."""
    generator = np.random.default_rng(0)
    days = [
        datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=float(h)) for h in generator.uniform(0, 9_000, ROWS)
    ]
    result = {
        "size": generator.normal(size=ROWS).tolist(),
        "count": generator.integers(0, 9, ROWS).tolist(),
        "town": generator.choice(["ash", "birch", "elm"], ROWS).tolist(),
        "new": (generator.random(ROWS) < 0.5).tolist(),
        "time": days,
    }
    for place, name in enumerate(("size", "count", "town", "time")):
        result[name][7 + place] = None
    return result


def pandas_frame():
    frame = pd.DataFrame(columns())
    return frame.assign(town=frame["town"].astype(object), new=frame["new"].astype(bool))


def targets():
    table = columns()
    return np.array(
        [(number or 0) + 2 * (town == "elm") for number, town in zip(table["size"], table["town"], strict=True)]
    )


def require_same(other):
    options = {**QUICK, "max_epochs": 3}
    y = targets()
    model, expected = (BayesNormRegressor(**options).fit(table, y) for table in (other, pandas_frame()))
    assert model.feature_names_in_.tolist() == list(columns())
    np.testing.assert_array_equal(model.predict(other), expected.predict(pandas_frame()))
    lower, upper = model.predict_interval(other)
    assert (lower < upper).all()
    assert (model.uncertainty(other)["reason"] == expected.uncertainty(pandas_frame())["reason"]).all()
    assert model.drift(other).rows == ROWS
    assert len(model.explain_uncertainty(other[:2], baseline=other[:1]).contributions) == 2


def test_arrow():
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")
    require_same(arrow.table(columns()))


def test_polars():
    polars = pytest.importorskip("polars", reason="needs polars: pip install polars")
    require_same(polars.DataFrame(columns()))
    frame = polars.DataFrame(columns())
    labels = (
        BayesNormClassifier(**QUICK).fit(frame.drop("town"), polars.Series(["a", "b"] * 30)).predict(frame.drop("town"))
    )
    assert set(labels) <= {"a", "b"}
    table = frame.with_columns(
        polars.col("town").cast(polars.Categorical),
        polars.col("time").dt.replace_time_zone("Europe/Amsterdam"),
        polars.col("count").cast(polars.Int8),
        date=polars.col("time").cast(polars.Date),
    )
    converted = as_pandas(table)
    assert converted["time"].dtype.kind == "M"
    assert converted["time"][0] == pd.Timestamp(columns()["time"][0])  # local time
    assert converted["town"].tolist() == columns()["town"]
    assert converted["count"].isna().sum() == converted["date"].isna().sum() == 1
    with pytest.raises(InputError, match=r"LazyFrame of polars, .* Pass X\.collect\(\)"):
        as_pandas(frame.lazy())


def test_other_tables_stay_as_they_are():
    for table in (pandas_frame(), [[1, 2]], np.zeros((2, 2)), types.SimpleNamespace()):
        assert as_pandas(table) is table
