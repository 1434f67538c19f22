"""Predictions of a large table are written in parts: an interrupted command continues, and the result is the same."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from bayesnorm.cli import new_rows, part_files
from bayesnorm.errors import BayesNormError, InputError

from .conftest import houses, write_csv

pandas = pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install pyarrow")

ROWS = 50


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(new_rows, "CHUNK", 4)
    monkeypatch.setattr(new_rows, "PART_CHUNKS", 3)
    monkeypatch.setattr(part_files, "PART_CHUNKS", 3)


@pytest.fixture
def interrupt(monkeypatch):
    """`interrupt(7)`: the command is interrupted before chunk 7."""

    original = new_rows.Scoring.score

    def after(chunks):
        count = iter(range(chunks))

        def score(self, part):
            if next(count, None) is None:
                raise KeyboardInterrupt
            return original(self, part)

        monkeypatch.setattr(new_rows.Scoring, "score", score)

    return after


def write_rows(tmp_path, kind):
    """Write the same new rows in a format, and return the argument of the command for them."""
    lines = houses(ROWS, seed=1)
    lines[3][0] = lines[20][0] = 9999  # rows unlike those of training, with reasons
    path = write_csv(tmp_path / "new.csv", lines)
    frame = pandas.read_csv(path)
    if kind == "jsonl":
        frame.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
        return tmp_path / "new.jsonl"
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(tmp_path / "new.db")) as database:
            frame.to_sql("houses", database, index=False)
        return f"sqlite:///{tmp_path / 'new.db'}?houses"
    if kind == "parquet":
        frame.to_parquet(tmp_path / "new.parquet", row_group_size=8)
        return tmp_path / "new.parquet"
    return path


def read(path):
    return pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("csv", "csv"), ("csv", "parquet"), ("jsonl", "csv"), ("sqlite", "csv"), ("parquet", "parquet")],
)
def test_parts_continue_and_are_the_whole(bayesnorm, regression_run, tmp_path, small_parts, interrupt, kind, suffix):
    table = write_rows(tmp_path, kind)
    whole, out = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_rows, "CHUNK", 1_000)
        assert bayesnorm("predict", regression_run.run, table, "--out", whole, "--with-inputs").code == 0
    arguments = ("predict", regression_run.run, table, "--out", out, "--with-inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_files, "PART_CHUNKS", 1_000)  # everything in one part
        assert bayesnorm(*arguments).code == 0
    in_one = out.read_bytes()
    out.unlink()
    interrupt(7)
    assert bayesnorm(*arguments).code == 130
    folder = tmp_path / f".out.{suffix}.parts"
    assert not out.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["000000", "000000.json", "000001", "000001.json", "key"]
    interrupt(1_000)
    ended = bayesnorm(*arguments)
    assert "Continuing after 24 rows that an earlier command predicted." in ended.err
    assert f"Wrote {ROWS} predictions to {out}." in ended.err
    assert f"2 of {ROWS} rows are unusual" in ended.err
    assert not folder.exists()
    if suffix == "csv":
        assert out.read_bytes() == in_one
    pandas.testing.assert_frame_equal(read(out), read(whole), rtol=1e-6)


def test_parts_of_other_predictions_are_not_used(bayesnorm, regression_run, tmp_path, small_parts, interrupt):
    data, out = write_csv(tmp_path / "new.csv", houses(ROWS, seed=1)), tmp_path / "out.csv"
    interrupt(7)
    assert bayesnorm("predict", regression_run.run, data, "--out", out).code == 130
    interrupt(1_000)
    assert "Continuing" not in bayesnorm("predict", regression_run.run, data, "--out", out, "--level", 0.5).err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    interrupt(7)
    assert bayesnorm("predict", regression_run.run, data, "--out", out, "--force").code == 130
    part = tmp_path / ".out.csv.parts" / "000001"
    part.write_bytes(part.read_bytes()[:-3])  # damaged: the part before it is used
    interrupt(1_000)
    assert "Continuing after 12 rows" in bayesnorm("predict", regression_run.run, data, "--out", out, "--force").err


def longer(path):
    values = json.loads(path.read_text())
    values["totals"]["rows"] += 1
    path.write_text(json.dumps(values))


def swap(folder):
    for suffix in ("", ".json"):
        first, second, other = (folder / f"{name}{suffix}" for name in ("000000", "000001", "key.partial"))
        first.rename(other)
        second.rename(first)
        other.rename(second)


# What is done to a folder of two parts with three rows each, and the rows that are then still used.
DAMAGE = {
    "a key of other bytes": (lambda folder: (folder / "key").write_bytes(b"\xff\xfe"), 0),
    "a key without end": (lambda folder: replace(folder / "key", "/dev/zero"), 0),
    "a part without end": (lambda folder: replace(folder / "000001", "/dev/zero"), 3),
    "a pipe": (lambda folder: (folder / "000000").unlink() or os.mkfifo(folder / "000000"), 0),
    "deep counts": (lambda folder: (folder / "000001.json").write_text("[" * 10**5), 3),
    "huge counts": (lambda folder: os.truncate(folder / "000001.json", 2**33), 3),
    "other counts": (lambda folder: longer(folder / "000001.json"), 3),
    "another order": (swap, 0),
    "a third part without content": (lambda folder: (folder / "000002.json").write_text("{}"), 6),
}


def replace(path, target):
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_parts_are_not_used(tmp_path, small_parts, damage):
    files = part_files.PartFiles(tmp_path / "out.csv", "the key")
    for number in range(6):
        files.add(new_rows.Scored(b"%d\n" % number, b"a\n", new_rows.Totals(rows=1)))
    files.close()
    change, rows = DAMAGE[damage]
    change(tmp_path / ".out.csv.parts")
    with part_files.part_files(tmp_path / "out.csv", "the key") as again:
        assert again.totals.rows == rows
        for number in range(rows, 6):
            again.add(new_rows.Scored(b"%d\n" % number, b"a\n", new_rows.Totals(rows=1)))
    assert (tmp_path / "out.csv").read_text() == "a\n0\n1\n2\n3\n4\n5\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_files_of_others_are_not_deleted(tmp_path):
    folder = tmp_path / ".out.csv.parts"
    folder.mkdir()
    (folder / "letter.txt").write_text("mine")
    with (
        pytest.raises(BayesNormError, match=r"parts contains files that are no parts of predictions"),
        part_files.part_files(tmp_path / "out.csv", "the key"),
    ):
        raise AssertionError
    assert (folder / "letter.txt").read_text() == "mine"


def test_another_process_writes_the_same_file(tmp_path, small_parts):
    files = part_files.PartFiles(tmp_path / "out.csv", "key")
    for _ in range(3):
        files.add(new_rows.Scored(b"1\n", b"a\n", new_rows.Totals(rows=1)))
    with (
        pytest.raises(BayesNormError, match=r"another process writes .*out\.csv now"),
        part_files.part_files(tmp_path / "out.csv", "key"),
    ):
        raise AssertionError
    files.close()
    with contextlib.suppress(InputError), part_files.part_files(tmp_path / "out.csv", "key") as again:
        assert again.totals.rows == 3
        raise InputError("a cell of the table is wrong")
    assert not [*tmp_path.iterdir()]


def test_kill_9(bayesnorm, regression_run, tmp_path, small_parts):
    """A killed command leaves no file, and the next one writes what one command would have written."""
    data, out = write_csv(tmp_path / "new.csv", houses(ROWS, seed=1)), tmp_path / "out.csv"
    command = ["predict", regression_run.run, data, "--out"]
    program = (
        "import sys, time\n"
        "from bayesnorm.cli import app, new_rows, part_files\n"
        "new_rows.CHUNK, new_rows.PART_CHUNKS, part_files.PART_CHUNKS = 4, 3, 3\n"
        "original, wait = new_rows.Scoring.score, iter([0] * 7 + [1000])\n"
        "new_rows.Scoring.score = lambda self, part: (time.sleep(next(wait)), original(self, part))[1]\n"
        "app.run(sys.argv[1:])\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, *map(str, command), str(out)])
    until, folder = time.monotonic() + 300, tmp_path / ".out.csv.parts"
    while not (folder / "000001.json").exists() and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert folder.exists()
    assert not out.exists()
    assert "Continuing after 24 rows" in bayesnorm(*command, out).err
    assert bayesnorm(*command, tmp_path / "whole.csv").code == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
