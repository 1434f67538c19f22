"""Local runs: the same results for any number of workers; what dies or raises costs itself only."""

from __future__ import annotations

import os
import signal

import pytest

from experiments.bench import Store, Tally, Unit, run_local


def test_results_are_the_same_for_any_number_of_workers(tmp_path, units, table):
    wanted = [
        *units("square", 12),
        *(Unit("plain", "fake_units:plain", {"x": x}) for x in range(5)),
        *(Unit("careless", "fake_units:careless", {"x": x}) for x in range(5)),
        Unit("odd", "fake_units:odd_values", {"x": 1}),
    ]
    tables = []
    for workers in (0, 1, 3):
        with Store(tmp_path / f"{workers}.db") as store:
            assert run_local(wanted, store, workers=workers) == Tally(0, 23, 0)
            tables.append([repr(table(store, name)) for name in store.experiments()])
            assert all(row["machine"]["threads"] == 1 and row["seconds"] >= 0 for row in store.rows("test"))
    assert tables[0] == tables[1] == tables[2]


def test_a_second_run_does_only_what_is_missing(store, units):
    run_local(units("square", 4), store, workers=0)
    told = []
    tally = run_local(units("square", 6) * 2, store, workers=0, progress=lambda *pair: told.append(pair))
    assert tally == Tally(stored=4, finished=2, failed=0)
    assert told == [(4, 6), (5, 6), (6, 6)]
    assert run_local(units("square", 6), store, workers=2) == Tally(6, 0, 0)
    assert run_local([], store) == Tally(0, 0, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_unit_that_raises_is_tried_again_by_the_next_run(store, units, tmp_path, workers):
    todo = [*units("fails_at_first", 2, folder=str(tmp_path)), *units("square", 3)]
    told = []
    tally = run_local(todo, store, workers=workers, progress=lambda *pair: told.append(pair))
    assert tally == Tally(0, 3, 2)
    assert told[-1] == (5, 5)
    failures = store.failures("test")
    assert [failure.attempts for failure in failures] == [1, 1]
    assert failures[0].error.startswith("Traceback")
    assert "RuntimeError: no luck with 0" in failures[0].error
    assert run_local(todo, store, workers=workers) == Tally(3, 2, 0)
    assert store.failures("test") == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("leaves", "SystemExit: 3"),
        ("tensor", "fake_units:tensor returned a value that JSON cannot represent (Object of type object is not JSON"),
        ("absent", "has no attribute 'absent'"),
    ],
)
def test_other_ways_to_fail(store, units, function, message):
    assert run_local(units(function, 1), store, workers=0) == Tally(0, 0, 1)
    assert message in store.failures("test")[0].error


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("SIGKILL", "killed by SIGKILL before the unit was finished, often because of too little memory."),
        ("SIGSEGV", "killed by SIGSEGV before the unit was finished."),
        ("exit", "ended with exit code 7 before the unit was finished."),
        ("beyond", "ended with exit code 1 before the unit was finished."),
        ("orphan", "killed by SIGKILL"),
    ],
)
def test_a_worker_that_dies_costs_its_unit_only(store, units, tmp_path, kind, message):
    todo = units("dies", 10, deadly=[2, 9], kind=kind, folder=str(tmp_path))
    assert run_local(todo, store, workers=2) == Tally(0, 8, 2)
    assert not (tmp_path / "ended").exists(), "the run waited for what a dead worker started"
    for path in tmp_path.glob("*.pid"):
        os.kill(int(path.stem), signal.SIGKILL)
    assert [row["result"] for row in store.rows("test")] == [0, 1, 9, 16, 25, 36, 49, 64]
    failures = store.failures("test")
    assert [failure.parameters["x"] for failure in failures] == [2, 9]
    assert all(message in failure.error and failure.attempts == 1 for failure in failures)
