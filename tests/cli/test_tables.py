"""Tables in files: how they are found out, everything that can be wrong with one, and samples of their rows."""

import os
import sys

import numpy as np
import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")

from bayesnorm.cli import tables
from bayesnorm.cli.file_columns import ColumnFormat, convert_columns
from bayesnorm.cli.table_source import Source
from bayesnorm.cli.tables import open_table, read_chunks, read_sample, read_table
from bayesnorm.errors import InputError, MissingExtraError

from ..marks import takes_long
from .conftest import houses, write_csv


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(write, delimiter):
    lines = ["a,b c,d".replace(",", delimiter), '1,"x, y; z|\t",3'.replace(",", delimiter, 1)]
    text = "\n".join([lines[0], f'1{delimiter}"x, y; z|"{delimiter}3', f"2{delimiter}w{delimiter}4"]) + "\n"
    file = open_table(write(text))
    assert (file.csv.delimiter, file.names) == (delimiter, ("a", "b c", "d"))
    frame = read_table(file)
    assert frame["b c"].tolist() == ["x, y; z|", "w"]
    assert frame.index.tolist() == [1, 2]


def test_tsv_is_what_its_name_says(write):
    assert open_table(write("a,b\tc\n1\t2\n", "t.tsv")).names == ("a,b", "c")


def test_a_byte_order_mark_spaces_and_a_nameless_column(write):
    file = open_table(write(b"\xef\xbb\xbf, a ,b\r\n0, 1, x\r\n1,,y\r\n"))
    assert file.names == ("a", "b")
    frame, kinds = convert_columns(read_table(file), file.source)
    assert kinds == {"a": "number", "b": "category"}
    assert frame["a"].tolist()[0] == 1.0
    assert frame["b"].tolist() == ["x", "y"]


def test_decimal_commas(write):
    file = open_table(write("a;b\n1,5;x\n2;y\n"))
    frame, kinds = convert_columns(read_table(file), file.source, decimal=file.decimal)
    assert kinds["a"] == "number"
    assert frame["a"].tolist() == [1.5, 2.0]
    assert open_table(write("a;b\n1,5;2.5\n")).decimal == "."


def test_parts_are_the_whole(write):
    file = open_table(write("a,b\n" + "".join(f"{i},{-i}\n" for i in range(10))))
    parts = [*read_chunks(file, ["b"], 4)]
    assert [len(part) for part in parts] == [4, 4, 2]
    assert [row for part in parts for row in part.index] == list(range(1, 11))
    assert [text for part in parts for text in part["b"]] == read_table(file)["b"].tolist()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_blank_line_is_a_row_where_there_is_one_column_only(write, end):
    one = open_table(write(end.join(["", "a", "1", "", "2", ""])))
    assert read_table(one)["a"].fillna("none").tolist() == ["1", "none", "2"]
    assert [part["a"].isna().tolist() for part in read_chunks(one, ["a"], 2)] == [[False, True], [False]]
    two = open_table(write(end.join(["", "a,", "1,", "", "2,", ""])))
    assert read_table(two)["a"].tolist() == ["1", "2"]


def test_what_a_column_holds(write):
    file = open_table(write("n,t,c,e,b,z\n1e30,x,1,,True,01\n-2,y,2.0,,False,02\n,,,,True,03\n"))
    frame, kinds = convert_columns(read_table(file), file.source, {name: ColumnFormat("category") for name in "cz"})
    assert kinds == {"n": "number", "t": "category", "c": "category", "e": "number", "b": "category", "z": "category"}
    assert frame["n"].tolist()[:2] == [1e30, -2.0]
    assert frame["t"].tolist() == ["x", "y", None]
    assert frame["b"].tolist() == ["True", "False", "True"]
    assert frame["z"].tolist() == ["01", "02", "03"]
    formats = {name: ColumnFormat(kind) for name, kind in kinds.items()}
    later, _ = convert_columns(read_table(open_table(write("z,n\n01,7\n"))), file.source, formats)
    assert later["z"].tolist() == ["01"]
    assert later["n"].tolist() == [7.0]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "is empty. Pass a table with column names in its first line"),
        (b"\n \n", "t.csv", "contains only blank lines"),
        (b"a,b\n", "t.csv", "has column names, but no rows"),
        (b"a,b\n\n\n", "t.csv", "has column names, but no rows"),
        (b"a,b,a\n1,2,3\n", "t.csv", "has two columns called 'a'. Rename one of them"),
        (b",,\n1,2,3\n", "t.csv", "has no column names"),
        (b"1,2\n3,4\n", "t.csv", r"the first line contains numbers \(1, 2, ...\) instead of column names"),
        (b"a,b\n1,2\n3,4,5\n", "t.csv", "line 3 has 3 cells, but the first line has 2 names"),
        (b"a,b\n1,2,3\n3,4,5\n", "t.csv", "line 2 has 3 cells, but the first line has 2 names"),
        (b'a,b\n"1,2\n3,4\n', "t.csv", "cannot be read as a table"),
        (b"a,b\n1," + b"x" * 2**23 + b"\n", "t.csv", "has a row of more than 8 MiB"),
        (b"a\0,b\n1,2\n", "t.csv", "is not a text file"),
    ],
)
def test_what_cannot_be_read(write, content, name, message):
    path = write(content, name)
    with pytest.raises(InputError, match=message) as caught:
        read_table(open_table(path))
    assert "\n" not in str(caught.value)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        open_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder"):
        open_table(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with a name")
def test_a_pipe_is_told_from_an_empty_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match=r"pipe\.csv is a pipe or a device, .* Pass a file, or - for standard input"):
        open_table(tmp_path / "pipe.csv")


def test_a_file_that_is_too_large_is_not_read(write, monkeypatch):
    path = write("a,b\n1,2\n")
    os.truncate(path, 2 * 2**30)  # a hole: takes no room
    monkeypatch.setattr(type(path), "open", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(InputError, match=r"has 2,048 MiB, more than 1024 MiB. Use fewer rows, or raise --max-size"):
        open_table(path)


def test_parquet_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"Parquet files need pyarrow. Run: pip install pyarrow"):
        open_table(write(b"PAR1", "t.parquet"))


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")
    import pandas as pd

    path = tmp_path / "t.parquet"
    original = pd.DataFrame(
        {"a": [1.5, None], "b": ["x", "y"], "c": [True, False], "d": pd.to_datetime(["2020", "2021"])}
    )
    original.to_parquet(path)
    file = open_table(path)
    assert file.names == ("a", "b", "c", "d")
    part = read_table(file, ["c", "a", "b"])
    assert [chunk.index.tolist() for chunk in read_chunks(file, ["a"], 1)] == [[1], [2]]
    frame, kinds = convert_columns(part, path)
    assert kinds == {"c": "category", "a": "number", "b": "category"}
    assert frame["c"].tolist() == ["True", "False"]
    with pytest.raises(InputError, match="column 'd' contains datetime64"):
        convert_columns(read_table(file), path)
    path.write_bytes(b"PAR1 but not for long")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_table(path)


def test_what_comes_as_one_is_handed_on_in_parts(tmp_path, monkeypatch):
    """As large groups of rows may, whose samples would not all fit into memory."""
    import pandas as pd

    whole = pd.DataFrame({"a": range(10), "b": range(10)})
    monkeypatch.setattr(tables, "parquet_parts", lambda source, columns, limit: iter([whole[columns]]))
    file = tables.TableFile(Source("t.parquet", tmp_path / "t.parquet"), "parquet", ("a", "b"))
    parts = [*read_chunks(file, ["b"], 4)]
    assert [part["b"].tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [row for part in parts for row in part.index] == list(range(1, 11))
    assert read_table(file).shape == (10, 2)


def test_without_pandas(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install scikit-learn pandas"):
        read_table(open_table(write("a,b\n1,2\n")))


@pytest.fixture
def numbers(tmp_path):
    """1,000 rows, every tenth without a target."""
    lines = [[i, "" if i % 10 == 0 else i] for i in range(1000)]
    return open_table(write_csv(tmp_path / "numbers.csv", [["x", "y"], *lines]))


def test_rows_with_a_target_are_drawn_in_order_and_none_twice(numbers):
    result = read_sample(numbers, None, 50, "y", seed=0, chunk=70)
    drawn = result.frame["x"].astype(int).to_numpy()
    assert (result.rows, result.without, len(drawn)) == (900, 100, 50)
    assert (np.diff(drawn) > 0).all()
    assert (drawn % 10 != 0).all()
    assert result.frame.index.tolist() == (drawn + 1).tolist()
    assert len(read_sample(numbers, None, 5_000, "y", seed=0).frame) == 900


@takes_long
def test_all_rows_have_the_same_chance(numbers):
    counts = np.zeros(1000)
    for seed in range(200):
        counts[read_sample(numbers, None, 90, "y", seed, chunk=300).frame["x"].astype(int)] += 1
    first, last = counts[:500].sum(), counts[500:].sum()
    # 18,000 samples without replacement, half of them from each half but for chance.
    assert abs(first - last) < 4 * np.sqrt(18_000 * 0.9)
    assert counts[counts > 0].size == 900


def test_no_more_is_held_than_a_part_and_twice_the_sample(numbers, monkeypatch):
    held, smallest = [], tables._smallest_keys

    def watched(parts, keys, most):
        held.append(len(keys))
        return smallest(parts, keys, most)

    monkeypatch.setattr(tables, "_smallest_keys", watched)
    read_sample(numbers, None, 20, "y", seed=0, chunk=50)
    assert max(held) <= 2 * 20 + 50


def test_parquet_is_sampled_in_parts(tmp_path):
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    lines = houses(40)[1:]
    frame = pandas.DataFrame([[float(a), c] for a, _, c, _ in lines], columns=["area", "town"])
    path = tmp_path / "houses.parquet"
    frame.to_parquet(path, row_group_size=15)
    assert parquet.ParquetFile(path).num_row_groups == 3
    result = read_sample(open_table(path), None, 12, "area", seed=1, chunk=7)
    assert (result.rows, len(result.frame)) == (40, 12)
    np.testing.assert_array_equal(result.frame["area"], frame["area"].iloc[result.frame.index - 1])
