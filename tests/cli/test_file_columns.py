"""What columns hold: the traps of numbers and categories that are written in more than one way."""

import datetime

import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")

import pandas as pd

from bayesnorm.cli.file_columns import ColumnFormat, convert_columns
from bayesnorm.cli.tables import open_table, read_table
from bayesnorm.cli.written_numbers import NumberFormat, detect_number_formats
from bayesnorm.errors import InputError


@pytest.fixture
def read(tmp_path):
    """`read(text)`: the columns of a file, and what they hold."""

    def columns(text, name="t.csv", **options):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        file = open_table(path)
        return convert_columns(read_table(file), path, decimal=file.decimal, **options)

    return columns


def test_whole_numbers_as_categories_are_the_same_with_and_without_a_decimal_point(read):
    """pandas writes 1.0 where a column has gaps, and 1 where it has none."""
    gaps, _ = read("z\n1.0\n2.00\nNA\n-3.0\n", formats={"z": ColumnFormat("category")})
    whole, _ = read("z\n1\n2\n-3\n", formats={"z": ColumnFormat("category")})
    assert gaps["z"].tolist() == ["1", "2", None, "-3"]
    assert whole["z"].tolist() == ["1", "2", "-3"]
    other, _ = read("z\n01\n1.10\n1.0.0\nv1.0\n", formats={"z": ColumnFormat("category")})
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
    with pytest.raises(InputError, match=r"column 'a' contains numbers with commas, such as '1,.*decimal") as caught:
        read(text, name)
    assert "\n" not in str(caught.value)
    _, kinds = read(text, name, formats={"a": ColumnFormat("category")})
    assert kinds["a"] == "category"


@pytest.mark.parametrize(
    ("cells", "values", "texts"),
    [
        (["$1,234.50", "-$7", "($3)", "12"], [1234.5, -7, -3, 12], {"mark": "$"}),
        (["5 %", "12.5%", "-3%"], [5, 12.5, -3], {"mark": "%"}),
        (["1.234,50 €", "7 €"], [1234.5, 7], {"mark": "€", "decimal": ","}),
        (["1,234", "12,345,678"], [1234, 12345678], {"mark": ""}),
        (["1,234", "1,5"], [1.234, 1.5], {"mark": "", "decimal": ","}),
        (["1 234.5", "1\u00a0000"], [1234.5, 1000], {"mark": ""}),
        (["1'234.5", "2e3"], [1234.5, 2000], {"mark": ""}),
    ],
)
def test_numbers_as_people_write_them(tmp_path, cells, values, texts):
    column = pd.DataFrame({"a": cells})
    formats = detect_number_formats(column, ".")
    column_format = ColumnFormat("number", formats["a"])
    assert column_format.as_json() == {"kind": "number", **texts}
    assert ColumnFormat.from_json(column_format.as_json()).as_json() == column_format.as_json()
    frame, kinds = convert_columns(column, tmp_path, {"a": ColumnFormat(numbers=formats["a"])})
    assert kinds == {"a": "number"}
    assert frame["a"].tolist() == values
    assert detect_number_formats(column, ".", categorical=["a"]) == {}


def test_what_is_written_in_no_other_way():
    for cells in (["1.5", "2"], ["x", "y"], ["1,2,3", "4,5,6"], ["0123 456", "030 12"], ["5%+", "6%+"]):
        assert detect_number_formats(pd.DataFrame({"a": cells}), ".") == {}


@pytest.mark.parametrize("odd", ["x", "€5", "1.2,3", "5%"])
def test_other_signs_and_words_among_written_numbers_are_never_categories(tmp_path, odd):
    column = pd.DataFrame({"a": ["$5", "$6", "$7", odd]})
    with pytest.raises(InputError, match=f"column 'a' contains numbers, but '{odd}' in row 3"):
        convert_columns(column, tmp_path, {"a": ColumnFormat(numbers=detect_number_formats(column, ".")["a"])})


def test_later_numbers_are_written_as_in_training(tmp_path):
    marks = {"a": NumberFormat("%"), "b": NumberFormat("$"), "c": None}
    formats = {name: ColumnFormat("number", mark) for name, mark in marks.items()}
    example = pd.DataFrame({"a": ["1,5 %"], "b": ["1.000"], "c": ["1.234,5"]})
    frame, _ = convert_columns(example, tmp_path, formats, ",")
    assert frame.iloc[0].tolist() == [1.5, 1000, 1234.5]
    for name, cell in (("a", 0.05), ("a", "5"), ("b", "5 €"), ("c", "$5")):
        with pytest.raises(InputError, match=f"column '{name}' contains numbers.* in training, but"):
            convert_columns(pd.DataFrame({name: [cell]}), tmp_path, formats)


def test_long_cells_are_not_looked_at_for_long(read):
    cell = "(" + 20_000 * " " + "x"
    frame, kinds = read(f"a;b\n{cell};1\n{cell};2\n")
    assert kinds == {"a": "category", "b": "number"}
    assert detect_number_formats(frame, ".") == {}


def test_thousands_points_beside_decimal_commas(read):
    text = "a;b\n1.234;5,5\n2;7\n"
    frame, _ = read(text, formats={"a": ColumnFormat(numbers=NumberFormat())})
    assert frame["a"].tolist() == [1234, 2]
    assert frame["b"].tolist() == [5.5, 7]


def test_a_point_among_decimal_commas_is_no_decimal_point(read):
    text = "a;b\n" + "1,5;x\n" * 100 + "1.234;y\n"
    with pytest.raises(InputError, match=r"column 'a' contains numbers, but '1.234' in row 101"):
        read(text)


def test_truths_with_gaps_are_categories_as_those_without(tmp_path):
    """Parquet gives objects where a column of truths has gaps."""
    gaps = pd.DataFrame({"b": pd.Series([True, None, False], dtype=object)})
    frame, kinds = convert_columns(gaps, tmp_path)
    assert kinds == {"b": "category"}
    assert frame["b"].tolist() == ["True", None, "False"]
    later, _ = convert_columns(pd.DataFrame({"b": [True, False]}), tmp_path, {"b": ColumnFormat("category")})
    assert later["b"].tolist() == ["True", "False"]


def test_dates_as_objects_are_text(tmp_path):
    frame, kinds = convert_columns(pd.DataFrame({"d": [datetime.date(2020, 1, 2)] * 2}), tmp_path)
    assert kinds == {"d": "category"}
    assert frame["d"].tolist() == ["2020-01-02"] * 2
