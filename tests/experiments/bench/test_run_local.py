"""Local runs: the same results for any number of workers; what dies or raises costs itself only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.bench import Store, Tally, Unit, run_local

from ...marks import takes_long
from .processes import gone

ROOT = Path(__file__).parents[3]


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
    assert tally == Tally(kept=4, finished=2, failed=0)
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


RUN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without it
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from experiments.bench import Store, Unit, run_local

folder = sys.argv[2]
units = [Unit("test", "fake_units:slow", {"x": x, "folder": folder, "seconds": 0.0 if x < 4 else 600.0})
         for x in range(8)]
with Store(folder + "/results.db") as store:
    run_local(units, store, workers=2)
"""


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=takes_long), signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_its_results_and_no_process(tmp_path, how):
    # From another folder, where only the run's own path leads to the experiments and to the units.
    arguments = [sys.executable, "-c", RUN, json.dumps([sys.path[0], str(ROOT)]), str(tmp_path)]
    options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True, "cwd": tmp_path}
    with subprocess.Popen(arguments, **options) as process:
        end = time.monotonic() + 300
        while len(list(tmp_path.glob("*.pid"))) < 6:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does: to the workers too
        else:
            process.kill()
        _, told = process.communicate(timeout=120)
    assert process.returncode == -how
    assert told.count("Traceback") == (how == signal.SIGINT)
    assert all(gone(int(file.read_text())) for file in tmp_path.glob("*.pid"))
    with Store(tmp_path / "results.db") as store:
        assert [row["x"] for row in store.rows("test")] == [0, 1, 2, 3]
        assert store.failures("test") == []
