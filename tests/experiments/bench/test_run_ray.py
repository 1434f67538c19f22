"""Ray runs: the table of a local run; a worker that dies costs its unit only; nothing is left behind."""

from __future__ import annotations

import gc
import secrets
import signal
import sys
import warnings

import pytest

from bayesnorm.errors import BayesNormError, MissingExtraError
from experiments.bench import Store, Tally, Unit, run_local, run_ray

from ...marks import takes_long

ray = pytest.importorskip("ray", reason="needs Ray: pip install ray")

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
