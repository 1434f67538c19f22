"""Ray runs: the table of a local run; a worker that dies costs its unit only; nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from bayesnorm.errors import BayesNormError, MissingExtraError
from experiments.bench import Runner, Store, Tally, Unit, run_local, run_ray

from ...marks import takes_long
from .processes import gone

ray = pytest.importorskip("ray", reason="needs Ray: pip install ray")

runner: Runner = run_ray

ROOT = Path(__file__).parents[3]

# Ray leaves its own pipes and log files to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:subprocess .* is still running:ResourceWarning"
)


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two cores, and this process's connection to it; its address."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # The cluster's own secret; without one Ray would make one and keep it in the user's home.
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        ray.init(address="local", num_cpus=2, object_store_memory=80 * 2**20, **quiet)
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()
    signal.signal(signal.SIGTERM, before)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # Ray forgets the processes that it has ended without waiting for them


@takes_long
@pytest.mark.usefixtures("cluster")
def test_the_same_table_as_a_local_run(tmp_path, units, table):
    wanted = [
        *units("square", 12),
        *(Unit("plain", "fake_units:plain", {"x": x}) for x in range(5)),
        *(Unit("careless", "fake_units:careless", {"x": x}) for x in range(5)),
        Unit("odd", "fake_units:odd_values", {"x": 1}),
        Unit("threads", "fake_units:threads", {"x": 1}),
        Unit("leaves", "fake_units:leaves", {"x": 1}),
        Unit("tensor", "fake_units:tensor", {"x": 1}),
    ]
    seen = []
    for run in (run_local, run_ray):
        told = []
        with Store(tmp_path / f"{run.__name__}.db") as store:
            assert run(wanted, store, workers=2, progress=lambda *pair, told=told: told.append(pair)) == Tally(0, 24, 2)
            names = store.experiments()
            failures = [[(f.parameters, f.error, f.attempts) for f in store.failures(name)] for name in names]
            seen.append((names, repr([table(store, name) for name in names]), failures))
            assert all(row["machine"]["threads"] == 1 and row["seconds"] >= 0 for row in store.rows("test"))
        assert told == [(done, 26) for done in range(27)]
    assert seen[0] == seen[1]


RUN = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without it
sys.path[:0] = json.loads(sys.argv[1])
from experiments.bench import Store, Unit, run_ray
folder = sys.argv[2]
units = [Unit("test", "fake_units:slow", {"x": x, "folder": folder, "seconds": 0.0 if x < 4 else 60.0})
         for x in range(8)]
with Store(folder + "/results.db") as store:
    run_ray(units, store, workers=2)
"""


def start(folder, home):
    """A run from another folder, where only the run's own path leads to the experiments and to the units."""
    without = ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_TOKEN", "RAY_AUTH_MODE")
    environment = {name: value for name, value in os.environ.items() if name not in without} | {"HOME": str(home)}
    elsewhere = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in ("", str(ROOT))]
    environment["PYTHONPATH"] = os.pathsep.join(elsewhere)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps([sys.path[0], str(ROOT)]), str(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )


def session(process):
    """Ids of the processes that a process, the leader of its session, has begun and that still live."""
    found = []
    for folder in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            number = int(folder)
            if os.getsid(number) == process.pid:
                found.append(number)
    return found


@takes_long
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_an_interrupted_run_on_a_cluster_of_its_own_leaves_its_results_and_no_process(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    with start(tmp_path, home) as process:
        end = time.monotonic() + 120
        while len(list(tmp_path.glob("*.pid"))) < 6:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.01)
        begun = session(process)
        assert len(begun) > 3
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Ray's processes too
        _, told = process.communicate(timeout=60)
    assert [*home.iterdir()] == []
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in told
    assert all(gone(number) for number in begun)
    with Store(tmp_path / "results.db") as store:
        assert [row["x"] for row in store.rows("test")] == [0, 1, 2, 3]
        assert store.failures("test") == []


def test_nothing_is_started_for_nothing(store, units, monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("a cluster was started"))
    run_local(units("square", 2), store, workers=0)
    assert run_ray(units("square", 2), store) == Tally(2, 0, 0)
    with pytest.raises(BayesNormError, match="units: there is no module no_such_module"):
        run_ray([Unit("test", "no_such_module:run", {})], store)


def test_without_ray(store, units, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="needs Ray: pip install ray"):
        run_ray(units("square", 1), store)
