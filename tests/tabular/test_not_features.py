"""Columns that nothing can be learned from, and those that only look so."""

import tracemalloc

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from bayesnorm.tabular.column_checks import leak, why_no_feature

ROWS = np.arange(40)


def texts(cells):
    return np.array(list(cells), dtype=object)


def test_reasons():
    for name, values, reason in (
        ("a", np.full(40, np.nan), "is empty"),
        ("a", texts([None] * 40), "is empty"),
        ("a", np.full(40, 3.0), "is 3 in every row"),
        ("a", texts(["x"] * 40), "is 'x' in every row"),
        ("flag", texts(["x", None] * 20), ""),
        ("name", texts(f"n{row % 30}" for row in ROWS), ""),
        ("name", texts(f"n{row % 31}" for row in ROWS), "contains text such as 'n0' that differs in most rows"),
        ("few", texts([*"abcdef", *[None] * 34]), ""),
        ("town", texts(f"n{row % 20}" for row in ROWS), ""),
        ("version", texts(f"1.2.{row % 5}" for row in ROWS), ""),
        ("town", texts(["2020-01-01", "Ede"] * 20), ""),
        ("n", 5.0 + np.random.default_rng(0).permutation(40), "numbers the rows, from 5 to 44"),
        ("year", 1980.0 + ROWS, ""),
        ("row_id", 7.0 * ROWS, "is an id, with a different whole number in every row"),
        ("userID", 7.0 * ROWS, "is an id, with a different whole number in every row"),
        ("paid", 7.0 * ROWS, ""),
        ("id", 7.5 * ROWS, ""),
        ("id", 7.0 * (ROWS // 2), ""),
        ("area", 7.0 * ROWS, ""),
    ):
        assert why_no_feature(name, values, ROWS) == reason


def test_a_count_of_rows_is_one_where_some_rows_are_gone():
    rows = ROWS[ROWS % 3 > 0]
    assert why_no_feature("n", rows + 1.0, rows) == "numbers the rows, from 2 to 39"


def test_dates_are_features_unless_they_never_differ():
    days = np.datetime64("2024-01-31", "s") + ROWS.astype("timedelta64[D]")
    assert why_no_feature("id", days, ROWS) == ""
    assert why_no_feature("sold", np.full(40, days[0]), ROWS) == "is 2024-01-31 in every row"
    assert why_no_feature("sold", np.full(40, np.datetime64("NaT", "s")), ROWS) == "is empty"


def test_one_long_text_takes_no_memory_in_the_other_rows():
    """Text of a fixed width would take 200 times the memory of the longest."""
    texts = np.array([*map(str, range(199)), "x" * 1_000_000], dtype=object)
    tracemalloc.start()
    assert why_no_feature("note", texts, np.arange(200)).startswith("contains text")
    leak(texts, np.arange(200.0), "price", classes=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
