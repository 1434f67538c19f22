"""What the columns of a table hold, in memory and in a file."""

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from bayesnorm.cli.file_columns import convert_columns
from bayesnorm.errors import InputError
from bayesnorm.tabular.column_types import contents_of, read_columns

DAY = datetime.date(2020, 1, 2)
REFUSED = "refused"


def kind_in_memory(values):
    try:
        _, (column,) = read_columns(values)
    except InputError:
        return REFUSED
    return {"O": "category", "M": "date", "f": "number"}[column.dtype.kind]


def kind_in_a_file(frame):
    try:
        return convert_columns(frame, Path("t.csv"))[1]["a"]
    except InputError:
        return REFUSED


def test_columns_of_all_kinds():
    for values, contents, frame, array, file in (
        (pd.Series([1, 2]), "numbers", "number", "number", "number"),
        (pd.Series([1, None], dtype="Int64"), "numbers", "number", "number", "number"),
        (pd.Series([Decimal("1.5"), None], dtype=object), "numbers", "number", "number", "number"),
        (pd.Series([0.0, 1.0], dtype=pd.SparseDtype(float)), "numbers", "number", "number", "number"),
        (pd.Series([True, False]), "truths", "number", "number", "category"),
        (pd.Series([True, None], dtype=object), "truths", "number", "number", "category"),
        (pd.Series(["1", "2.5"]), "text", "category", "number", "number"),
        (pd.Series(["1", "x"], dtype=object), "text", "category", "category", "category"),
        (pd.Series(["x", "y"], dtype="category"), "categories", "category", "category", "category"),
        (pd.Series(["1", "2"], dtype="category"), "categories", "category", "number", "number"),
        (pd.Series(pd.to_datetime(["2020", "2021"])), "dates", "date", "date", REFUSED),
        (pd.Series(pd.to_timedelta([1, 2], unit="s")), "durations", REFUSED, REFUSED, REFUSED),
        (pd.Series([DAY, None], dtype=object), "date objects", "date", "date", "category"),
        (pd.Series([None, None], dtype=object), "text", "category", "number", "number"),
        (pd.Series([np.nan, np.nan]), "numbers", "number", "number", "number"),
    ):
        assert contents_of(values) == contents
        table = pd.DataFrame({"a": values})
        assert kind_in_memory(table) == frame
        assert kind_in_memory(table.to_numpy(object)) == array
        assert kind_in_a_file(table) == file


def test_complex_numbers_are_refused():
    assert contents_of(pd.Series([1j, 2])) == "complex numbers"
    assert kind_in_memory(pd.DataFrame({"a": [1j, 2]})) == REFUSED


def test_text_is_read_as_numbers_alike_wherever_it_comes_from():
    words = ["1e3", " 2 ", "-.5", "+7"]
    _, (array,) = read_columns(np.array(words)[:, None])
    file, kinds = convert_columns(pd.DataFrame({"a": words}), Path("t.csv"))
    assert kinds == {"a": "number"}
    assert array.tolist() == file["a"].tolist() == [1000.0, 2.0, -0.5, 7.0]
    for odd in ("1_000", "0x10", "one"):  # numbers to Python's own ear at most
        assert kind_in_memory(np.array([odd, odd])[:, None]) == kind_in_a_file(pd.DataFrame({"a": [odd, odd]}))
