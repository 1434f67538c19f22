"""A store keeps what it was given, whoever is killed, and says clearly when a file is none."""

import contextlib
import math
import sqlite3

import pytest

from bayesnorm.errors import BayesNormError, FileFormatError
from experiments.bench import Failure, Store, Unit

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


def test_a_file_of_another_kind_or_version_is_refused_and_stays(tmp_path):
    for name, command, message in (
        ("foreign", "CREATE TABLE mine (a)", r"is a database, but not a bayesnorm store. Use another"),
        ("newer", "PRAGMA user_version = 2", "store of version 2, which is newer than version 1 of this"),
    ):
        path = tmp_path / f"{name}.db"
        if name == "newer":
            Store(path).close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(command)
        before = path.read_bytes()
        with pytest.raises(FileFormatError, match=message):
            Store(path)
        assert path.read_bytes() == before
    path.write_text("This is no database, only a note of some length. " * 20)
    with pytest.raises(FileFormatError, match=r"newer\.db is damaged or not a store \(file is not a database\)"):
        Store(path)
