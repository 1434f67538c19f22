"""A store keeps what it was given, whoever is killed, and says clearly when a file is none."""

import math
import sqlite3
import subprocess
import sys

import pytest

from bayesnorm.errors import BayesNormError, FileFormatError
from experiments.bench import Failure, Store, Unit, run_local

RUN = "package.module:run"


def unit(experiment="e", /, **parameters):
    return Unit(experiment, RUN, parameters)


def test_round_trip(tmp_path):
    path = tmp_path / "results.db"
    result = {"rmse": 0.1 + 0.2, "nested": {"b": [1, None], "a": "ü\ud800"}, "bad": float("nan"), "big": 2**70}
    with Store(path) as store:
        store.add_result(unit(seed=1, data="yacht"), result, 1.5, {"cpu": "any"})
    assert [file.name for file in tmp_path.iterdir()] == ["results.db"]
    with Store(str(path)) as store:
        (row,) = store.rows("e")
        assert math.isnan(row.pop("bad"))
        del result["bad"]
        assert row == {"data": "yacht", "seed": 1, **result, "seconds": 1.5, "machine": {"cpu": "any"}}
        assert store.experiments() == ["e"]
        assert store.rows("other") == []


def test_missing_keeps_order_and_drops_repetitions(store):
    units = [unit(seed=seed) for seed in (3, 1, 2, 1, 3)]
    assert store.missing(units) == [units[0], units[1], units[2]]
    store.add_result(units[1], 1)
    store.add_failure(units[2], "broken")
    assert store.missing(units) == [units[0], units[2]]
    with pytest.raises(BayesNormError, match="occurs twice, with the functions"):
        store.missing([unit(a=1), Unit("e", "other:run", {"a": 1})])
    with pytest.raises(BayesNormError, match=r"units must be experiments.bench.Unit, got str"):
        store.missing("ab")


def test_rows_are_in_the_order_of_values(store):
    values = ["b", 10, 2, None, 2.5, "a", [2], [1, 9]]
    for value in values:
        store.add_result(unit(a=value), {})
    assert [row["a"] for row in store.rows("e")] == [None, 2, 2.5, 10, "a", "b", [1, 9], [2]]


def test_failures_count_attempts_until_there_is_a_result(store):
    store.add_failure(unit(a=1), "first")
    store.add_failure(unit(a=1), "second \udcff")
    assert store.failures("e") == [Failure({"a": 1}, "second \\udcff", 2)]
    assert store.rows("e") == []
    store.add_result(unit(a=1), {"b": 2})
    assert store.failures("e") == []
    store.add_failure(unit(a=1), "too late")
    store.add_result(unit(a=1), {"b": 3})
    assert [row["b"] for row in store.rows("e")] == [2]
    assert store.failures("e") == []


CSV = """data,seed,rmse,layers,note,seconds,machine
yacht,1,0.30000000000000004,"[50, 50]","a ""b"", c",1.5,"{""cpu"": ""any""}"
yacht,2,NaN,,,,
yacht,10,,,true,,
"""


def test_csv(store, tmp_path):
    store.add_result(unit(seed=10, data="yacht"), {"note": True})
    store.add_result(unit(seed=2, data="yacht"), {"rmse": float("nan")})
    result = {"rmse": 0.1 + 0.2, "layers": [50, 50], "note": 'a "b", c'}
    store.add_result(unit(seed=1, data="yacht"), result, 1.5, {"cpu": "any"})
    store.export_csv("e", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == CSV
    with pytest.raises(BayesNormError, match=r"experiment: 'f' has no results in .*, which has 'e'"):
        store.export_csv("f", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == CSV
    with pytest.raises(FileFormatError, match="does not exist"):
        store.export_csv("e", tmp_path / "absent" / "out.csv")


def test_what_is_no_store(tmp_path):
    text = tmp_path / "notes.db"
    text.write_text("This is no database, only a note of some length. " * 20)
    with pytest.raises(FileFormatError, match=r"notes\.db is damaged or not a store \(file is not a database\)"):
        Store(text)
    assert text.read_text().startswith("This is no database")

    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    before = foreign.read_bytes()
    with pytest.raises(FileFormatError, match=r"is a database, but not a bayesnorm store. Use another"):
        Store(foreign)
    assert foreign.read_bytes() == before

    with pytest.raises(FileFormatError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(FileFormatError, match="path: SQLite cannot use a write-ahead log for :memory:"):
        Store(":memory:")
    with pytest.raises(FileFormatError, match=r"folder .*absent does not exist. Create it first"):
        Store(tmp_path / "absent" / "a.db")


def test_another_version(tmp_path):
    for version, age in ((2, "newer"), (0, "older")):
        path = tmp_path / f"{version}.db"
        Store(path).close()
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
        with pytest.raises(FileFormatError, match=f"store of version {version}, which is {age} than version 1 of this"):
            Store(path)


def test_a_damaged_file(tmp_path):
    path = tmp_path / "results.db"
    with Store(path) as store:
        for a in range(100):
            store.add_result(unit(a=a), {"text": "x" * 100})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:4096] + bytes(4096) + whole[8192:]):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="is damaged"):
            Store(path)
    for subtle in (whole[:-100], whole.replace(b'{"a":7}', b'{"a":8}'), whole.replace(b'"xxx', b'"xxy', 1)):
        assert subtle != whole
        path.write_bytes(subtle)
        with Store(path) as store, pytest.raises(FileFormatError, match=r"is damaged \(unit \w+ was changed\)"):
            store.rows("e")
    path.write_bytes(b"")  # killed before anything was written
    with Store(path) as store:
        assert store.experiments() == []


def test_a_result_that_is_no_json(store):
    with pytest.raises(BayesNormError, match=r"result: JSON cannot represent it .*object.* Return plain numbers"):
        store.add_result(unit(), {"a": object()})


FORKED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from experiments.bench import Store, Unit, run_local


def units(count):
    return [Unit("test", "fake_units:square", {"x": x, "text": "t" * 500}) for x in range(count)]

def child(work):
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)
"""

KILLED = """
def work(instructions):
    with Store(sys.argv[1]) as store:
        left = [instructions]

        def step():
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        def begin(done, total):
            store._connection.set_progress_handler(step, 1)

        run_local(units(40), store, workers=0, progress=begin)

def missing():
    with Store(sys.argv[1]) as store:
        return len(store.missing(units(40)))

left = [missing()]
for instructions in (200, 211, 222, 233, 244):  # of SQLite, in the middle of different writes
    _, status = os.waitpid(child(lambda: work(instructions)), 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    left.append(missing())
assert 0 < left[-1] and all(more > less for more, less in zip(left, left[1:])), left
"""


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="needs fork")
def test_writers_killed_at_any_moment_lose_nothing(tmp_path, table):
    here = str(sys.path[0])
    path = tmp_path / "results.db"
    subprocess.run([sys.executable, "-c", FORKED + KILLED, str(path), here], check=True, timeout=300)
    units = [Unit("test", "fake_units:square", {"x": x, "text": "t" * 500}) for x in range(40)]
    with Store(path) as store, Store(tmp_path / "other.db") as uninterrupted:
        left = len(store.missing(units))
        tally = run_local(units, store, workers=0)
        assert (tally.kept, tally.finished, tally.failed) == (40 - left, left, 0)
        run_local(units, uninterrupted, workers=0)
        assert table(store) == table(uninterrupted)
        assert len(table(store)) == 40
