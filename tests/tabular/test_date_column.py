"""Columns of dates as features: a trend, and parts where dates differ enough to show them."""

import json

import numpy as np
import pandas as pd
import pytest

from bayesnorm.errors import InputError
from bayesnorm.tabular.preprocessing import Preprocessing


def days(count, start="2024-01-01", step="D"):
    return np.datetime64(start, "s") + np.arange(count).astype(f"timedelta64[{step}]")


def fitted(values):
    return Preprocessing.fit(pd.DataFrame({"when": values}))


YEAR = ["when: time of year, sine", "when: time of year, cosine"]
DAY = ["when: time of day, sine", "when: time of day, cosine"]


def test_parts_are_features_where_dates_can_show_them():
    assert fitted(days(10)).feature_names == ["when"]
    week = fitted(days(30)).feature_names
    assert (week[0], len(week), week[1]) == ("when", 8, "when: day of the week = Friday")
    months = np.datetime64("2020-01") + np.arange(24)
    assert fitted(months.astype("datetime64[s]")).feature_names == ["when", *YEAR]
    assert fitted(days(48, step="h")).feature_names == ["when", *DAY]
    assert fitted(np.append(days(10), np.datetime64("NaT"))).feature_names == ["when", "when is missing"]


def test_the_end_of_a_year_is_near_its_beginning():
    preprocessing = fitted(days(800))
    places = [preprocessing.feature_names.index(name) for name in YEAR]
    row = preprocessing.transform(pd.DataFrame({"when": pd.to_datetime(["2024-12-31", "2025-01-01", "2025-07-01"])}))
    assert np.abs(row[0] - row[1])[places].max() < 0.05 < 1 < np.abs(row[0] - row[2])[places].max()


def test_each_row_is_read_alone_and_what_training_never_had_is_told():
    preprocessing = fitted(days(60)[np.arange(60) % 7 < 5])
    new = pd.DataFrame({"when": pd.to_datetime(["2024-01-02", "2024-01-06", None])})
    rows = preprocessing.read(new)
    features, unseen = rows.features, rows.unseen_columns
    assert unseen == ["", "when", "when"]
    assert np.isfinite(features).all()
    for row in range(3):
        assert (preprocessing.transform(new.iloc[[row]])[0] == features[row]).all()


def test_dates_survive_json_and_stay_dates():
    preprocessing = fitted(days(800))
    again = Preprocessing.from_config(json.loads(json.dumps(preprocessing.config())))
    assert again.columns == preprocessing.columns
    with pytest.raises(InputError, match=r"column 'when' contains dates in training, but 'soon' now. Convert it with"):
        again.transform(pd.DataFrame({"when": ["soon"]}))
    numbers = Preprocessing.fit(pd.DataFrame({"when": [1.0, 2.0]}))
    with pytest.raises(InputError, match="contains numbers in training, but dates now"):
        numbers.transform(pd.DataFrame({"when": days(2)}))
