"""What columns hold: the traps of numbers and categories that are written in more than one way."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install 'bayesnorm[tabular]'")

import pandas as pd

from bayesnorm.cli.file_columns import typed
from bayesnorm.cli.tables import open_table, read_table
from bayesnorm.errors import InputError


@pytest.fixture
def read(tmp_path):
    """`read(text)`: the columns of a file, and what they hold."""

    def columns(text, name="t.csv", **options):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        file = open_table(path)
        return typed(read_table(file), path, decimal=file.decimal, **options)

    return columns


def test_whole_numbers_as_categories_are_the_same_with_and_without_a_decimal_point(read):
    """pandas writes 1.0 where a column has gaps, and 1 where it has none."""
    gaps, _ = read("z\n1.0\n2.00\nNA\n-3.0\n", categorical=["z"])
    whole, _ = read("z\n1\n2\n-3\n", categorical=["z"])
    assert gaps["z"].tolist() == ["1", "2", None, "-3"]
    assert whole["z"].tolist() == ["1", "2", "-3"]
    other, _ = read("z\n01\n1.10\n1.0.0\nv1.0\n", categorical=["z"])
    assert other["z"].tolist() == ["01", "1.10", "1.0.0", "v1.0"]


def test_decimal_commas_between_tabs(read):
    frame, kinds = read("a\tb\n1,5\tx\n-2,25\ty\n3\tz\n", "t.txt")
    assert kinds["a"] == "number"
    assert frame["a"].tolist() == [1.5, -2.25, 3.0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a\tb\n1,234\tx\n12,345\ty\n", "t.txt"),  # thousands, or decimals: nobody can tell
        ('a,b\n"1,234",x\n"12,345",y\n', "t.csv"),
        ('a,b\n"1,5",x\n"2,5",y\n', "t.csv"),
        ('a,b\n"1,234.50",x\n"2,000,000.50",y\n', "t.csv"),
        ("a;b\n1,5;2.5\n1,6;2.5\n", "t.csv"),
    ],
)
def test_numbers_with_commas_are_never_taken_for_categories(read, text, name):
    with pytest.raises(
        InputError, match=r"the column 'a' holds numbers with commas, such as '1,.*decimal point"
    ) as caught:
        read(text, name)
    assert "\n" not in str(caught.value)
    _, kinds = read(text, name, categorical=["a"])
    assert kinds["a"] == "category"


def test_a_point_among_decimal_commas_is_no_decimal_point(read):
    text = "a;b\n" + "1,5;x\n" * 100 + "1.234;y\n"
    with pytest.raises(InputError, match=r"the column 'a' holds numbers, but '1.234' in row 101"):
        read(text)


def test_truths_with_gaps_are_categories_as_those_without(tmp_path):
    """Parquet gives objects where a column of truths has gaps."""
    gaps = pd.DataFrame({"b": pd.Series([True, None, False], dtype=object)})
    frame, kinds = typed(gaps, tmp_path)
    assert kinds == {"b": "category"}
    assert frame["b"].tolist() == ["True", None, "False"]
    later, _ = typed(pd.DataFrame({"b": [True, False]}), tmp_path, kinds=kinds)
    assert later["b"].tolist() == ["True", "False"]


def test_dates_as_objects_are_text(tmp_path):
    frame, kinds = typed(pd.DataFrame({"d": [datetime.date(2020, 1, 2)] * 2}), tmp_path)
    assert kinds == {"d": "category"}
    assert frame["d"].tolist() == ["2020-01-02"] * 2
