"""Limits of what a table may hold, and content that is refused or escaped before training."""

import contextlib
import sqlite3
import time

import numpy as np
import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from bayesnorm.cli.file_columns import convert_columns
from bayesnorm.cli.held_out import random_split
from bayesnorm.cli.inputs_and_targets import guess_task
from bayesnorm.cli.options import Task
from bayesnorm.cli.table_source import as_labels
from bayesnorm.cli.tables import open_table, read_chunks, read_table
from bayesnorm.errors import InputError

from ..fuzzing.child import in_a_child


def test_wide_csv_files_are_read(write):
    """Tables of genes have 20,000 columns, and a first line of more characters than Python's default limit."""
    names = [f"gene_{i}" for i in range(20_000)]
    path = write(",".join(names) + "\n" + ",".join(["0.25"] * 20_000) + "\n")
    file = open_table(path)
    assert file.names == tuple(names)
    assert read_table(file, ["gene_0", "gene_19999"]).to_numpy().tolist() == [["0.25", "0.25"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2}\n{"a": 1, "a": 2}\n', r"line 2 is not JSON \(the key 'a' occurs twice\)\. Correct that"),
        ("".join(f'{{"k{i}": 1}}\n' for i in range(900)), "has more than 1 MiB of cells, of at least 8 bytes each"),
        (
            "".join(f'{{"k{i}": 1}}\n' for i in range(2000)),
            r"has 2,000 different keys, but 1\.0 in a line on average",
        ),
        ('{"a\\u001b[2J": 1}\n', r"the column name 'a\\x1b\[2J' has control characters\. Rename the column"),
        ('{"\\ud800": 1}\n', r"the column name '\\ud800' has control characters"),
    ],
)
def test_json_lines_that_are_refused(write, text, message):
    with pytest.raises(InputError, match=message):
        read_table(open_table(write(text, "t.jsonl"), 1))


def test_json_numbers_that_no_float_holds(write):
    file = open_table(write(f'{{"a": {10**400}}}\n', "t.jsonl"))
    with pytest.raises(InputError, match="column 'a' contains inf in row 1, which is infinite"):
        convert_columns(read_table(file), file.source)


def test_control_characters_in_cells_are_escaped(write):
    for path in (write("a\n" + "x\n" * 3000 + "\x1b[2J\0\n"), write('{"a": "\\u001b[2J\\u0000"}\n', "t.jsonl")):
        file = open_table(path)
        frame, _ = convert_columns(read_table(file), file.source)
        assert frame["a"].iloc[-1] == r"\x1b[2J\x00"
    file = open_table(write('{"a": "\\ud800"}\n', "t.jsonl"))
    assert read_table(file)["a"].tolist() == [r"\ud800"]


def test_parts_have_little_text(write):
    file = open_table(write("a,b\n" + f"{'x' * 10**6},1\n" * 20))
    assert [len(part) for part in read_chunks(file, None, 2000)] == [9, 9, 2]


def test_short_cells_count_at_least_8_bytes(write):
    path = write("a,b\n" + "1,2\n" * 70_000)
    with pytest.raises(InputError, match="has more than 1 MiB of cells"):
        read_table(open_table(path, 1))
    assert len(read_table(open_table(path, 2))) == 70_000


def test_too_many_columns(write):
    with pytest.raises(InputError, match="has more than 100,000 columns"):
        open_table(write(",".join(f"c{i}" for i in range(100_001)) + "\n"))


@pytest.fixture
def database(tmp_path):
    """`database("CREATE VIEW ...")`: the path of a database with a table t of 100 rows."""

    def make(*commands, log=False):
        path = tmp_path / "d.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as file:
            if log:
                file.execute("PRAGMA journal_mode = WAL")
            file.execute("CREATE TABLE t (a REAL, b TEXT)")
            file.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"b{i % 3}") for i in range(100)])
            for command in commands:
                file.execute(command)
            file.commit()
        return path

    return make


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c", "not authorized"),
        ("SELECT count(*) AS n FROM t x, t y, t z, t w, t u", "a view takes too many steps"),
        ("SELECT zeroblob(900000000) AS n FROM t", "string or blob too big"),
        ("SELECT zeroblob(8000000) AS n FROM t", "has more than 64 MiB of cells"),
        ("SELECT load_extension('x') AS n FROM t", "cannot be read as an SQLite database"),
        ("SELECT name AS n FROM sqlite_master", "cannot be read as an SQLite database"),
    ],
)
def test_views_that_do_not_end_or_do_more_than_read(database, view, message, monkeypatch):
    monkeypatch.setattr("bayesnorm.cli.typed_files.STEPS", 10**6)
    path = database(f"CREATE VIEW v AS {view}")
    with pytest.raises(InputError, match=message):
        read_table(open_table(f"sqlite:///{path}?v", 64))


def test_views_that_compute_are_read(database):
    path = database("CREATE VIEW v AS SELECT round(avg(a), 1) AS mean, b FROM t GROUP BY b ORDER BY b")
    assert read_table(open_table(f"sqlite:///{path}?v"))["mean"].tolist() == [49.5, 49.0, 50.0]


@pytest.mark.parametrize("is_open", [False, True])
def test_nothing_is_left_beside_a_database_with_a_log(database, is_open):
    """The last rows are in the log while a program has the database open."""
    path = database(log=True)
    with contextlib.closing(sqlite3.connect(path)) as writer:
        if is_open:
            writer.execute("INSERT INTO t VALUES (7, 'new')")
            writer.commit()
        else:
            writer.close()
        before = {other.name: other.stat().st_mtime_ns for other in path.parent.iterdir()}
        rows = read_table(open_table(f"sqlite:///{path}?t"))
        assert len(rows) == 100 + is_open
        assert {other.name: other.stat().st_mtime_ns for other in path.parent.iterdir()} == before


def test_zero_bytes_on_standard_input_are_refused_at_once(bayesnorm, tmp_path, monkeypatch):
    with open("/dev/zero", "rb") as zeros:
        monkeypatch.setattr("sys.stdin", type("Stream", (), {"buffer": zeros}))
        start = time.monotonic()
        with pytest.raises(InputError, match="standard input is not a text file"):
            open_table("-")
        assert time.monotonic() - start < 5


def test_long_labels_take_their_own_memory(tmp_path):
    """200 labels, of which one has a million characters."""
    labels = np.array([*(["yes", "no"] * 100), "x" * 10**6, "x" * 10**6], dtype=object)

    def choose():
        assert guess_task("y", labels, "category")[0] is Task.classification
        train, test = random_split(labels, 0.2, 0, Task.classification)
        assert len(train) + len(test) == len(labels)
        assert as_labels(labels).dtype == object

    in_a_child(choose, more_memory=2**28)
