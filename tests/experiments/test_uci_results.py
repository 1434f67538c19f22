"""Units of the regression benchmark, and their results put together: what is chosen, said and written."""

import csv
import json
import sys
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest

from experiments.bench import Store, Unit
from experiments.uci import Preset, export, note_run, presets, results, rows, units
from experiments.uci.folds import Data

SIZES = {"yacht": 60, "boston": 100}
TINY = Preset(
    sets=("boston", "yacht"),
    splits=(1, 2),
    folds=2,
    seeds=(1, 2),
    weight_decays=(1e-3,),
    batch_sizes=(16, 32, 64),
    rates=(0.1, 0.01),
    epochs=4,
    evaluate_every=2,
    patience=5,
    samples=6,
    weight_steps=10,
    dropout_batch_size=16,
)


def tiny(name):
    generator = np.random.default_rng(SIZES[name])
    x = generator.normal(size=(SIZES[name], 3))
    return x, 20 + 4 * x[:, 0] + 2 * generator.normal(size=SIZES[name])


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setattr(sys.modules[Data.__module__], "load_uci", tiny)
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.db") as opened:
        yield opened


def test_keys_stay_the_same():
    """Results of a stopped run are found again by their parameters, whatever else is asked for."""
    by_key = {unit.key: unit for unit in units("tiny")}
    asked = units("tiny", sets=["yacht"], methods=["MNF", "GaussianBN"])
    assert {unit.parameters["family"] for unit in asked} == {"bn", "mnf"}
    assert len(asked) == 5
    assert all(by_key[unit.key].parameters == unit.parameters for unit in asked)
    stacked = {"preset": "tiny", "dataset": "boston", "family": "dropout", "setting": 0.01, "device": "cpu"}
    weights = {"preset": "tiny", "dataset": "boston", "family": "bbb", "split": 2, "seed": 1}
    for parameters, function in ((stacked, "unit:run"), (weights, "weights:run")):
        unit = by_key[Unit("uci-tiny", "any:name", parameters).key]
        assert unit.function == f"experiments.uci.{function}"
    assert not by_key.keys() & {unit.key for unit in units("tiny", methods=["MCBN"], device="cuda")}


MACHINE = {"cpu": "a chip", "python": "3.11", "torch": "2", "bayesnorm": "0"}


def row(method, split, seed, cv_rmse, score, **others):
    numbers = ("rmse", "crps", "pll", "normalised_crps", "normalised_pll", "pll_own", "normalised_pll_own")
    numbers += ("coverage_95", "precision", "cv_crps")
    scores = {name: score + i / 8 for i, name in enumerate(numbers)}
    return {"split": split, "seed": seed, "method": method, "passes": None, "cv_rmse": cv_rmse, **scores, **others}


def keep(store, family, setting, result, curve=(), **others):
    named = {"setting": setting, "device": "cpu"} if family in ("bn", "dropout") else {"split": 1, "seed": setting}
    unit = Unit("uci-tiny", "any:name", {"preset": "tiny", "dataset": "yacht", "family": family, **named})
    told = {"rows": result, "network_steps": 100, "unit_seconds": 2.0, **others}
    if family in ("bn", "dropout"):
        told |= {"curve": list(curve), "points": {"error": [setting], "std": [1.0], "constant_std": [1.0]}}
    store.add_result(unit, told, 2.5, MACHINE)


@pytest.fixture
def filled(store):
    """Two batch sizes, which the networks' own RMSE and MCBN's rank differently, and split 2 the other way round."""
    cv = {  # by batch size: (BN, MCBN) on split 1, and on split 2
        16.0: ((2.0, 3.5), (4.0, 1.0)),
        32.0: ((3.0, 3.0), (3.9, 1.1)),
    }
    for size, splits in cv.items():
        result = []
        for split, (point, drawn) in enumerate(splits, 1):
            for seed in (1, 2):
                score = size + split + seed / 4
                result += [row("BN", split, seed, point, score), row("MCBN", split, seed, drawn, score + 10)]
                result += [row("MCBN", split, seed, drawn, 1000, passes=5), row("CUBN", split, seed, drawn, score + 20)]
            result.append(row("DeepEnsemble", split, 0, point, size + split + 30))
        keep(store, "bn", size, result, curve=[{"effective_batch_size": size}])
    for seed in (1, 2):
        keep(store, "mnf", seed, [row("MNF", 1, seed, None, 50 + seed)])
    return store


def test_each_criterion_chooses_a_size_of_its_own(filled):
    result = rows(filled, "tiny")
    assert [*result[0]] == list(results.COLUMNS)
    chosen = {(row["method"], row["split"], row["setting"]) for row in result if row["chosen"]}
    by_point = {(method, split, size) for method in ("BN", "DeepEnsemble") for split, size in ((1, 16.0), (2, 32.0))}
    by_mean = {(method, split, size) for method in ("MCBN", "CUBN") for split, size in ((1, 32.0), (2, 16.0))}
    assert chosen == by_point | by_mean | {("MNF", 1, None)}
    assert Counter(row["chosen"] for row in result) == {1: 20, 0: 18}
    assert {row["family"] for row in result if row["method"] == "MNF"} == {"mnf"}
    assert rows(filled, "quick") == []


def test_export_reads_back(filled, tmp_path, monkeypatch):
    assert "summed seconds of runs" not in results.header(filled, "tiny"), "no run was noted"
    for ended, took, workers in (("a", 12.34, 2), ("b", 2.5, None)):
        monkeypatch.setattr(results, "datetime", Mock(now=Mock(return_value=Mock(isoformat=Mock(return_value=ended)))))
        note_run(filled, "tiny", seconds=took, workers=workers, finished=4)
    path = tmp_path / "rows.csv"
    export(filled, "tiny", path)
    with path.open(newline="") as file:
        result = list(csv.DictReader(file))
    everything = rows(filled, "tiny")
    rest = [entry for entry in everything if entry["chosen"] or entry["method"] == "MCBN"]
    assert len(rest) < len(everything)
    assert len(result) == len(rest)
    assert [*result[0]] == list(results.COLUMNS)
    assert [float(row["crps"]) for row in result] == pytest.approx([row["crps"] for row in rest], rel=5e-5)
    head = json.loads(path.with_suffix(".json").read_text())
    assert head["preset"] == "tiny"
    assert head["units"] == {"bn": 2, "mnf": 2}
    assert head["network steps"] == {"bn": 200, "mnf": 200}
    assert head["summed seconds of runs"] == 15
    assert head["runs"] == ["4 units in 12 s, 2 at once", "4 units in 2 s"]
    assert [(entry["dataset"], entry["setting"]) for entry in head["curves"]] == [("yacht", 16.0), ("yacht", 32.0)]
    assert [entry["setting"] for entry in head["points"]] == [32.0], "the size that split 1 chose for MCBN"
