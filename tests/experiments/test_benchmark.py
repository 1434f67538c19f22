"""`python -m experiments uci`, `show` and `export`: running with either runner, looking at stores, exporting."""

from __future__ import annotations

import csv
import json
import types

import pytest

from experiments import uci as real_uci
from experiments.bench import Store, Tally, Unit
from experiments.uci import benchmark


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "filled.sqlite"
    with Store(path) as store:
        for x in (2, 10, 1):
            store.add_result(Unit("alpha", "any.where:run", {"x": x, "y": f"n{x}"}), {"crps": x / 3}, 0.5, {"cpu": "c"})
        store.add_failure(Unit("alpha", "any.where:run", {"x": 7, "y": "n7"}), "Traceback\n ...\nRuntimeError: no\n")
        store.add_failure(Unit("beta", "any.where:run", {"x": 1}), "lost")
    return path


def test_show_lists_experiments(experiments, filled):
    lines = [line.split() for line in experiments("show", filled).out.splitlines()]
    assert lines[0] == ["experiment", "results", "failures"]
    assert lines[2:] == [["alpha", "3", "1"], ["beta", "0", "1"]]
    told = json.loads(experiments("show", filled, "--json").out)
    assert told[1] == {"experiment": "beta", "results": 0, "failures": 1}


def test_show_prints_a_table_and_failures_beneath(experiments, filled):
    lines = experiments("show", filled, "--experiment", "alpha").out.splitlines()
    assert lines[0] == "alpha: 3 results"
    assert lines[1].split() == ["x", "y", "crps", "seconds"]
    assert lines[3].split() == ["1", "n1", "0.3333", "0.5"]
    below = lines.index("alpha: 1 failures")
    assert lines[below - 1] == ""
    assert lines[below + 3].split() == ['{"x":', "7,", '"y":', '"n7"}', "1", "RuntimeError:", "no"]


def test_show_as_json(experiments, filled):
    told = json.loads(experiments("show", filled, "--experiment", "alpha", "--json").out)
    assert [row["x"] for row in told["results"]] == [1, 2, 10]
    assert told["results"][0]["machine"] == {"cpu": "c"}
    assert told["failures"][0]["error"].startswith("Traceback")


def test_show_refuses(refuses, filled, tmp_path):
    line = refuses("show", tmp_path / "none.sqlite")
    assert "there is no file" in line
    assert not (tmp_path / "none.sqlite").exists()
    line = refuses("show", filled, "--experiment", "gamma")
    assert "--experiment: 'gamma' is not in" in line
    assert "Use one of alpha, beta" in line
    (tmp_path / "text.sqlite").write_text("no database" * 100)
    assert "is damaged or not a store" in refuses("show", tmp_path / "text.sqlite")


def test_export(experiments, refuses, filled, tmp_path):
    out = tmp_path / "alpha.csv"
    arguments = ("export", filled, "--experiment", "alpha", "--out", out)
    ended = experiments(*arguments)
    assert ended.code == 0
    with out.open(newline="") as file:
        assert [row["x"] for row in csv.DictReader(file)] == ["1", "2", "10"]
    out.write_text("mine")
    assert "exists already. Use --force" in refuses(*arguments)
    assert out.read_text() == "mine"
    assert experiments(*arguments, "--force").code == 0
    assert out.read_text() != "mine"
    assert "'beta' has no results" in refuses("export", filled, "--experiment", "beta", "--out", out, "--force")


def test_export_never_writes_over_the_store(refuses, filled, tmp_path):
    before = filled.read_bytes()
    (tmp_path / "link.csv").symlink_to(filled)
    for out in (filled, tmp_path / "link.csv"):
        arguments = ("export", filled, "--experiment", "alpha", "--out", out, "--force")
        assert "is the store itself" in refuses(*arguments)
    assert filled.read_bytes() == before


def test_export_of_the_uci_benchmark_without_results(refuses, tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        store.add_failure(Unit("uci-quick", "any.where:run", {"dataset": "yacht"}), "lost")
    arguments = ("export", tmp_path / "s.sqlite", "--experiment", "uci-quick", "--out")
    assert "has no results of the preset 'quick'" in refuses(*arguments, tmp_path / "uci.csv")
    assert "is the name of the JSON file" in refuses(*arguments, tmp_path / "uci.json")
    assert "is a folder" in refuses(*arguments, ".")
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]


def test_export_of_the_uci_benchmark(experiments, refuses, tmp_path, monkeypatch):
    with Store(tmp_path / "s.sqlite") as store:
        found = {"rows": [{"method": "MCBN", "rmse": 0.5, "split": 1}, {"method": "BN", "rmse": 0.6, "split": 1}]}
        store.add_result(Unit("uci-quick", "any.where:run", {"dataset": "yacht"}), found)
        store.add_result(Unit("uci-quick", "any.where:run", {"dataset": "yacht", "device": "cuda"}), found)
    written = []
    monkeypatch.setattr(real_uci, "export", lambda store, *rest: written.append(rest))
    out = tmp_path / "uci.csv"
    arguments = ("export", tmp_path / "s.sqlite", "--experiment", "uci-quick", "--out", out)
    (tmp_path / "uci.json").touch()
    assert "uci.json exists already" in refuses(*arguments)
    assert written == []
    ended = experiments(*arguments, "--force")
    assert ended.code == 0
    assert "Units computed on a CPU and on a GPU: 1; the GPU's results count." in ended.err
    assert written == [("quick", out)]
    assert "(2 entries)" in experiments("show", tmp_path / "s.sqlite", "--experiment", "uci-quick").out


HALVE = """
import os

def halve(x):
    if x == 3 and os.path.exists(os.environ["BROKEN"]):
        raise OSError("odd")
    return x / 2
"""


@pytest.fixture
def uci(monkeypatch, tmp_path):
    """An experiment in place of the real one, which trains for long; notes what it was asked for."""
    asked = {}

    def units(preset, *, sets, methods, device):
        asked.update(preset=preset, sets=sets, methods=methods, device=device)
        return [Unit("uci-quick", "quick_units:halve", {"x": x}) for x in range(4)]

    fake = types.SimpleNamespace(
        PRESETS={"quick": 1, "paper": 2},
        METHODS=("MCBN",),
        units=units,
        note_run=real_uci.note_run,
        summary=lambda store, preset: f"{preset}: {len(store.rows('uci-quick'))} results",
    )
    monkeypatch.setattr(benchmark, "uci", fake)
    (tmp_path / "quick_units.py").write_text(HALVE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BROKEN", str(tmp_path / "broken"))
    return asked


def test_uci(experiments, uci, tmp_path):
    store = tmp_path / "bench.sqlite"
    ended = experiments("uci", "--workers", 1, "--store", store)
    assert (ended.code, ended.out) == (0, "quick: 4 results\n")
    assert f"0 existed, 4 finished, 0 failed; results are in {store}" in ended.err
    assert uci == {"preset": "quick", "sets": None, "methods": None, "device": "cpu"}
    assert "4 existed, 0 finished" in experiments("uci", "--workers", 1, "--store", store).err
    with Store(store) as opened:  # the run that did something, not the one that found all there
        (run,) = opened.rows("uci-quick runs")
    assert (run["finished"], run["workers"]) == (4, 1)
    assert 0 < run["wall"] < 600


def test_a_store_of_before_the_experiments_left_the_package_goes_on(experiments, uci, tmp_path):
    """A unit is known by its experiment and parameters; where its function is does not matter."""
    with Store(tmp_path / "s.sqlite") as store:
        for x in range(3):
            store.add_result(Unit("uci-quick", "bayesnorm.experiments.uci.unit:run", {"x": x}), x / 2)
    ended = experiments("uci", "--workers", 1, "--store", tmp_path / "s.sqlite")
    assert "3 existed, 1 finished, 0 failed" in ended.err


def test_uci_passes_everything_on(experiments, uci, tmp_path, monkeypatch):
    called = []
    for name in ("run_local", "run_ray"):

        def run(units, store, *, progress, name=name, **options):
            called.append((name, options))
            return Tally(0, 0, 0)

        monkeypatch.setattr(benchmark, name, run)
    common = ("--store", tmp_path / "s.sqlite", "--threads", 3)
    chosen = ("--preset", "paper", "--set", "yacht", "--set", "wine", "--method", "MCBN", "--device", "cuda")
    experiments("uci", *common, *chosen)
    assert uci == {"preset": "paper", "sets": ["yacht", "wine"], "methods": ["MCBN"], "device": "cuda"}
    experiments("uci", *common, "--runner", "ray", "--address", "10.0.0.1:6379", "--workers", 5)
    assert called == [
        ("run_local", {"workers": None, "threads": 3}),
        ("run_ray", {"address": "10.0.0.1:6379", "workers": 5, "threads": 3}),
    ]


def test_uci_interrupted_keeps_its_time(experiments, uci, tmp_path, monkeypatch):
    def run(units, store, **_):
        store.add_result(units[2], 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "run_local", run)
    store = tmp_path / "bench.sqlite"
    assert experiments("uci", "--workers", 3, "--store", store).code == 130
    with Store(store) as opened:
        (run,) = opened.rows("uci-quick runs")
    assert (run["finished"], run["workers"]) == (1, 3)


def test_uci_with_failures(experiments, uci, tmp_path):
    (tmp_path / "broken").touch()
    store = tmp_path / "my bench.sqlite"
    ended = experiments("uci", "--workers", 1, "--store", store)
    assert (ended.code, ended.out) == (1, "quick: 3 results\n")
    last = ended.err.splitlines()[-1]
    assert last.startswith("error: 1 units failed. Run `python -m experiments show")
    assert f"'{store}' --experiment uci-quick` to see why" in last
    assert "OSError: odd" in experiments("show", store, "--experiment", "uci-quick").out
    (tmp_path / "broken").unlink()
    assert experiments("uci", "--workers", 1, "--store", store).code == 0


def test_uci_refuses(refuses, uci, tmp_path):
    store = ("--store", tmp_path / "s.sqlite")
    assert "--address needs --runner ray" in refuses("uci", "--address", "a:1", *store, code=2)
    line = refuses("uci", "--preset", "huge", *store, code=2)
    assert "--preset must be one of quick, paper, got 'huge'" in line
    line = refuses("uci", "--set", "yacht", "--set", "iris", *store, code=2)
    assert "--set must be one of boston," in line
    assert "--method must be one of MCBN, got 'MCDO'" in refuses("uci", "--method", "MCDO", *store, code=2)
    assert "'--threads'" in refuses("uci", "--threads", 0, *store, code=2)
    assert "'--runner'" in refuses("uci", "--runner", "frob", *store, code=2)
    assert "'--device'" in refuses("uci", "--device", "tpu", *store, code=2)
    assert "does not exist. Create it first" in refuses("uci", "--store", tmp_path / "no" / "s.sqlite")
    assert not (tmp_path / "s.sqlite").exists()
