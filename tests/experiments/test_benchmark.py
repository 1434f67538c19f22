"""`python -m experiments uci`, `show` and `export`: running with either runner, looking at stores, exporting."""

import csv
import types

import pytest

from experiments import uci as real_uci
from experiments.bench import Store, Unit
from experiments.uci import benchmark


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "filled.sqlite"
    with Store(path) as store:
        for x in (2, 10, 1):
            store.add_result(Unit("alpha", "any.where:run", {"x": x, "y": f"n{x}"}), {"crps": x / 3}, 0.5, {"cpu": "c"})
        store.add_failure(Unit("beta", "any.where:run", {"x": 1}), "lost")
    return path


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


def test_uci_refuses(refuses, uci, tmp_path):
    for options, words in (
        (("--address", "a:1"), "--address needs --runner ray"),
        (("--preset", "huge"), "--preset must be one of quick, paper, got 'huge'"),
        (("--set", "yacht", "--set", "iris"), "--set must be one of boston,"),
        (("--method", "MCDO"), "--method must be one of MCBN, got 'MCDO'"),
        (("--runner", "frob"), "'--runner'"),
    ):
        assert words in refuses("uci", *options, "--store", tmp_path / "s.sqlite", code=2)
    assert not (tmp_path / "s.sqlite").exists()
