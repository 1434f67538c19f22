"""Mixed tables as standardised numbers."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from bayesnorm.errors import InputError
from bayesnorm.tabular import Preprocessing


def test_features_of_a_mixed_table(mixed):
    X, _ = mixed
    preprocessing = Preprocessing.fit(X)
    features = preprocessing.transform(X)
    assert preprocessing.feature_names == [
        "size",
        "size is missing",
        *(f"town = {name}" for name in ("ash", "birch", "elm")),
        *(f"grade = {number}" for number in (1, 2, 3)),
        "new",
    ]
    assert features.shape == (90, 9)
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(features.std(0), 1, rtol=1e-12)
    absent = X["size"].isna().to_numpy()
    assert (features[absent, 1] > 0).all()
    assert (features[~absent, 1] < 0).all()


def test_long_whole_numbers_stay_different_categories():
    ids = [10**17 + 1, 10**17 + 2] * 3
    for column in (pd.Categorical(ids), pd.Series([*ids[:5], "x"], dtype=object)):
        names = Preprocessing.fit(pd.DataFrame({"id": column})).feature_names
        assert names[:2] == [f"id = {ids[0]}", f"id = {ids[1]}"]
    mixed = pd.DataFrame({"id": pd.Series([1, 1.0, np.int64(1), np.float32(1), "1", True, "x"], dtype=object)})
    assert Preprocessing.fit(mixed).feature_names == ["id = 1", "id = another"]


def test_a_missing_number_counts_as_the_median():
    values = np.array([1.0, 2.0, 3.0, 4.0, np.nan, 100.0])
    features = Preprocessing.fit(values[:, None]).transform(np.array([[3.0], [np.nan]]))
    assert features[0, 0] == features[1, 0]


def test_an_enormous_number_does_no_harm():
    values = np.random.default_rng(0).normal(size=(200, 1))
    values[0] = 1e30
    preprocessing = Preprocessing.fit(values)
    features = preprocessing.transform(values)
    assert np.isfinite(features).all()
    assert features[1:].std() > 0.1  # the others can still be told apart
    later = preprocessing.transform(np.array([[1.7e308], [-1.7e308], [1e30], [0.0]]))
    assert np.isfinite(later).all()
    assert later[0] > later[2] > later[3] > later[1]


def test_numbers_that_are_mostly_the_same():
    values = np.zeros((50, 1))
    values[:5, 0] = [1, 2, 3, 4, 5]
    features = Preprocessing.fit(values).transform(values)
    assert np.isfinite(features).all()
    assert len(np.unique(features)) == 6


def test_what_training_never_held_is_told(mixed):
    X, _ = mixed
    frame = X.iloc[:4].copy()
    frame["same"] = 1.0
    training = X.assign(same=1.0)
    frame.loc[frame.index[0], "town"] = "yew"
    frame["grade"] = frame["grade"].astype(object)
    frame.loc[frame.index[1], "grade"] = None
    frame.loc[frame.index[2], "same"] = 2.0
    preprocessing = Preprocessing.fit(training)
    rows = preprocessing.read(frame)
    features, unseen = rows.features, rows.unseen_columns
    assert unseen == ["town", "grade", "same", ""]
    assert "same" not in preprocessing.feature_names  # it never changed
    encoded = preprocessing.transform(training.iloc[:4])
    np.testing.assert_array_equal(features[3], encoded[3])
    zero = -preprocessing.mean / preprocessing.std
    np.testing.assert_array_equal(features[0, 2:5], zero[2:5])  # none of the towns


def test_rare_categories_share_a_feature_that_new_ones_join():
    town = ["ash"] * 10 + ["elm"] * 10 + ["oak", "yew"]
    preprocessing = Preprocessing.fit(pd.DataFrame({"town": town}))
    assert preprocessing.feature_names == ["town = ash", "town = elm", "town = another"]
    rows = preprocessing.read(pd.DataFrame({"town": ["oak", "fir"]}))
    features, unseen = rows.features, rows.unseen_columns
    np.testing.assert_array_equal(features[0], features[1])
    assert unseen == ["", "town"]


def test_many_categories_are_cut_off():
    names = [f"name {i:03d}" for i in range(100) for _ in range(2 + (i < 30))]
    preprocessing = Preprocessing.fit(pd.DataFrame({"name": names}))
    assert len(preprocessing.feature_names) == 31


def test_columns_of_numbers_by_type():
    for values in (
        pd.array([1, None, 3], dtype="Int64"),
        pd.array([True, None, False], dtype="boolean"),
        pd.array([1.5, None, 2.5], dtype="Float64"),
        np.array([1, None, 2.5], dtype=object),
        np.array([Decimal("1.5"), None, Decimal(2)], dtype=object),
        np.array([True, False, True]),
        np.array([3, 4, 6], dtype=np.uint8),
    ):
        preprocessing = Preprocessing.fit(pd.DataFrame({"a": values}))
        assert preprocessing.feature_names[0] == "a"
        assert np.isfinite(preprocessing.transform(pd.DataFrame({"a": values}))).all()


def test_arrays_of_text_hold_numbers_where_they_can_be_read():
    X = np.array([["1.5", "ash"], ["2", "elm"], ["4", "elm"], ["nan", "ash"]])
    assert Preprocessing.fit(X).feature_names == ["column 0", "column 0 is missing", "column 1 = ash", "column 1 = elm"]


def test_categories_are_known_as_numbers_and_as_text():
    preprocessing = Preprocessing.fit(pd.DataFrame({"grade": pd.Categorical([1, 2, 3, 1, 2, 3])}))
    tables = [preprocessing.read(pd.DataFrame({"grade": [value]})) for value in (2, 2.0, "2")]
    assert [table.unseen_columns for table in tables] == [[""]] * 3
    assert all(np.array_equal(table.features, tables[0].features) for table in tables)


def test_a_table_that_never_changes_has_one_feature_that_says_nothing():
    preprocessing = Preprocessing.fit(pd.DataFrame({"a": [1.0] * 5, "b": ["x"] * 5, "c": [np.nan] * 5}))
    np.testing.assert_array_equal(
        preprocessing.transform(pd.DataFrame({"a": [2.0], "b": ["y"], "c": [1.0]})), np.zeros((1, 1))
    )


def test_a_column_of_objects_that_training_has_no_value_of_may_hold_anything_later():
    preprocessing = Preprocessing.fit(pd.DataFrame({"a": [1.0, 2.0], "b": np.array([None, None], dtype=object)}))
    rows = preprocessing.read(pd.DataFrame({"a": [1.0] * 3, "b": ["ash", 2, None]}))
    features, unseen = rows.features, rows.unseen_columns
    assert features.shape == (3, 1)
    assert unseen == ["b", "b", ""]


def test_text_among_numbers_is_an_error_that_names_the_column():
    preprocessing = Preprocessing.fit(pd.DataFrame({"age": [1.0, 2.0, 3.0]}))
    with pytest.raises(InputError, match=r"column 'age' contains numbers in training, but 'old' in row 1"):
        preprocessing.transform(pd.DataFrame({"age": ["4", "old"]}))
    assert np.isfinite(preprocessing.transform(pd.DataFrame({"age": ["4", "5"]}))).all()


def test_durations_complex_numbers_and_infinity_are_refused():
    for values, message in [
        (pd.to_timedelta(["1 day", "2 days"]), "column 'a' contains durations"),
        ([datetime.date(2020, 1, 1), "soon"], "column 'a' contains dates and 'soon'. Pass only dates"),
        (np.array([1j, 2]), "column 'a': Complex data not supported"),
        (np.array([1.0, np.inf]), "column 'a' contains infinity in row 1"),
    ]:
        with pytest.raises(InputError, match=message):
            Preprocessing.fit(pd.DataFrame({"a": values}))
    for values in (np.array([[1.0, -np.inf], [1.0, 2.0]]), np.array([["ash", "-inf"], ["elm", "2"]])):
        with pytest.raises(InputError, match="column 1 contains infinity in row 0"):
            Preprocessing.fit(values)


def test_what_was_learned_survives_json(mixed):
    X, _ = mixed
    preprocessing = Preprocessing.fit(X)
    again = Preprocessing.from_config(json.loads(json.dumps(preprocessing.config(), allow_nan=False)))
    np.testing.assert_array_equal(again.transform(X), preprocessing.transform(X))
    assert again.columns == preprocessing.columns
