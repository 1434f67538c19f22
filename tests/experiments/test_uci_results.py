"""Units of the regression benchmark, and their results put together: what is chosen, said and written."""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
from torch import nn

from bayesnorm.errors import BayesNormError
from experiments.bench import Store, Unit, run_local
from experiments.data import UCI_SETS
from experiments.significance import significance
from experiments.teye_tables import compare, read_rows
from experiments.uci import PRESETS, Preset, export, note_run, presets, results, rows, summary, units, weights
from experiments.uci.folds import Data

from ..marks import takes_long

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


def test_what_there_is_to_compute():
    found = units("tiny")
    sets = [unit.parameters["dataset"] for unit in found]
    assert sets == sorted(sets, key=lambda name: SIZES[name]), "smaller sets first"
    counts = Counter((unit.parameters["dataset"], unit.parameters["family"]) for unit in found)
    # Of yacht's 60 rows 48 are for training and 24 for a fold, of boston's 100 rows 40: too few for larger batches.
    assert counts == {
        ("yacht", "bn"): 1, ("yacht", "dropout"): 2, ("yacht", "bbb"): 4, ("yacht", "mnf"): 4,
        ("boston", "bn"): 2, ("boston", "dropout"): 2, ("boston", "bbb"): 4, ("boston", "mnf"): 4,
    }  # fmt: skip
    sizes = {
        (unit.parameters["dataset"], unit.parameters["setting"]) for unit in found if unit.parameters["family"] == "bn"
    }
    assert sizes == {("yacht", 16.0), ("boston", 16.0), ("boston", 32.0)}
    assert {unit.experiment for unit in found} == {"uci-tiny"}
    assert len({unit.key for unit in found}) == len(found)


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


@pytest.mark.parametrize(("family", "name"), [("bbb", "BayesByBackprop"), ("mnf", "MNF")])
def test_weights_are_those_of_layers_with_biases(monkeypatch, family, name):
    """Without batch norm's shifts and without biases, a network could only scale about the training mean."""
    networks = []

    class Seen(weights.METHODS[family]):
        def fit(self, model, *arguments, **options):
            networks.append(model)
            return super().fit(model, *arguments, **options)

    monkeypatch.setitem(weights.METHODS, family, Seen)
    (found,) = weights.run("tiny", "boston", family, 1, 1)["rows"]
    assert found["method"] == name
    assert np.isfinite([found[key] for key in ("rmse", "crps", "pll", "normalised_crps", "pll_own")]).all()
    (network,) = networks
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linear] == [(50, 3), (50, 50), (1, 50)]
    assert all(layer.bias is not None for layer in linear)


def test_presets_and_bad_names():
    assert PRESETS["paper"].sets == UCI_SETS
    assert set(PRESETS["quick"].sets) <= presets.PRECISIONS.keys() == set(UCI_SETS)
    with pytest.raises(BayesNormError, match=r"preset must be .*one of paper, quick.*, got 'papers'"):
        units("papers")
    with pytest.raises(BayesNormError, match=r"set must be one of boston, .*yacht, got 'iris'"):
        units("tiny", sets=["yacht", "iris"])
    with pytest.raises(BayesNormError, match=r"method must be one of BN, .*MCDropout.*, got 'MCDO'"):
        units("tiny", methods=["BN", "MCDO"])


MACHINE = {"cpu": "a chip", "python": "3.11", "torch": "2", "bayesnorm": "0"}
FAMILIES = {name: family for family, own in results.METHODS_OF.items() for name in own}


def row(method, split, seed, cv_rmse, score, **others):
    numbers = ("rmse", "crps", "pll", "normalised_crps", "normalised_pll", "pll_own", "normalised_pll_own")
    numbers += ("coverage_95", "precision", "cv_crps")
    own = {name: score + i / 8 for i, name in enumerate(numbers)}
    return {"split": split, "seed": seed, "method": method, "passes": None, "cv_rmse": cv_rmse, **own, **others}


def keep(store, family, setting, found, curve=(), **others):
    named = {"setting": setting, "device": "cpu"} if family in ("bn", "dropout") else {"split": 1, "seed": setting}
    unit = Unit("uci-tiny", "any:name", {"preset": "tiny", "dataset": "yacht", "family": family, **named})
    told = {"rows": found, "network_steps": 100, "unit_seconds": 2.0, **others}
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
        found = []
        for split, (point, drawn) in enumerate(splits, 1):
            for seed in (1, 2):
                score = size + split + seed / 4
                found += [row("BN", split, seed, point, score), row("MCBN", split, seed, drawn, score + 10)]
                found += [row("MCBN", split, seed, drawn, 1000, passes=5), row("CUBN", split, seed, drawn, score + 20)]
            found.append(row("DeepEnsemble", split, 0, point, size + split + 30))
        keep(store, "bn", size, found, curve=[{"effective_batch_size": size}])
    for seed in (1, 2):
        keep(store, "mnf", seed, [row("MNF", 1, seed, None, 50 + seed)])
    return store


def test_each_criterion_chooses_a_size_of_its_own(filled):
    found = rows(filled, "tiny")
    assert [*found[0]] == list(results.COLUMNS)
    chosen = {(each["method"], each["split"], each["setting"]) for each in found if each["chosen"]}
    by_point = {(method, split, size) for method in ("BN", "DeepEnsemble") for split, size in ((1, 16.0), (2, 32.0))}
    by_mean = {(method, split, size) for method in ("MCBN", "CUBN") for split, size in ((1, 32.0), (2, 16.0))}
    assert chosen == by_point | by_mean | {("MNF", 1, None)}
    assert Counter(each["chosen"] for each in found) == {1: 20, 0: 18}
    assert {each["family"] for each in found if each["method"] == "MNF"} == {"mnf"}
    assert rows(filled, "quick") == []


@pytest.mark.parametrize(
    ("values", "chosen"),
    [((float("nan"), 3.0), 1), ((3.0, float("nan")), 0), ((3.0, 3.0), 0), ((float("nan"),) * 2, 0)],
)
def test_one_size_is_chosen_where_networks_went_astray_or_sizes_are_level(store, values, chosen):
    sizes = (16.0, 32.0)
    for size, value in zip(sizes, values, strict=True):
        keep(store, "bn", size, [row("MCBN", 1, seed, value, size) for seed in (1, 2)])
    found = [each["setting"] for each in rows(store, "tiny") if each["chosen"]]
    assert found == [sizes[chosen]] * 2


def test_what_was_computed_on_two_devices_counts_once(filled):
    before = rows(filled, "tiny"), results.header(filled, "tiny")["units"], summary(filled, "tiny")
    same = filled.rows("uci-tiny")[0]
    unit = Unit(
        "uci-tiny",
        "any:name",
        {name: same[name] for name in ("preset", "dataset", "family", "setting")} | {"device": "cuda"},
    )
    told = {name: same[name] for name in ("rows", "network_steps", "unit_seconds", "curve", "points")}
    on_gpu = [{**each, "coverage_95": 0.123} for each in told["rows"]]
    filled.add_result(unit, {**told, "rows": on_gpu}, 1.0, MACHINE)
    assert len(filled.rows("uci-tiny")) == 5
    found = rows(filled, "tiny")
    assert len(found) == len(before[0])
    assert {each["coverage_95"] for each in found if each["setting"] == same["setting"]} == {0.123}, "the GPU's"
    assert [each for each in found if each["setting"] != same["setting"]] == [
        each for each in before[0] if each["setting"] != same["setting"]
    ]
    assert results.header(filled, "tiny")["units"] == before[1]
    said = summary(filled, "tiny").splitlines()
    assert len(said) == len(before[2].splitlines()) + 2
    assert said[-1] == "Units computed on a CPU and on a GPU: 1; the GPU's results count."


def test_summary_has_means_and_errors_of_the_chosen(filled):
    text = summary(filled, "tiny")
    lines = {line[:24].strip(): line for line in text.splitlines()}
    assert "yacht" in lines
    assert text.count("\n\n") == 1, "one set"
    scores = [32 + 1 + 0.25 + 10, 32 + 1 + 0.5 + 10, 16 + 2 + 0.25 + 10, 16 + 2 + 0.5 + 10]
    mean, error = statistics.fmean(scores), statistics.stdev(scores) / 2
    line = lines["MCBN"]
    assert line[24:].split()[:4] == ["4", f"{mean:.3f}", "±", f"{error:.3f}"]
    assert f"{mean + 2 / 8:.2f} ± {error:.2f}" in line, "PLL"
    stars = significance([score + 3 / 8 for score in scores]).stars
    assert f"{mean + 3 / 8:.1f} ± {error:.1f} {stars}" in line, "normalised CRPS"
    assert line.endswith(f"{mean + 7 / 8:.2f}"), "coverage"
    assert lines["DeepEnsemble"][24:].split()[0] == "2"
    assert [name for name in lines if name in FAMILIES] == ["BN", "CUBN", "MCBN", "DeepEnsemble", "MNF"]
    with pytest.raises(BayesNormError, match="store: has no results of the preset 'quick'"):
        summary(filled, "quick")


def test_a_run_that_gave_no_number_does_not_hide_the_others(filled):
    """NaN is said where it is, and all else as if it were not there."""
    before = summary(filled, "tiny").splitlines()
    for seed, score in ((1, 3.0), (2, float("nan"))):
        keep(filled, "bbb", seed, [row("BayesByBackprop", 1, seed, None, score)])
    lines = summary(filled, "tiny").splitlines()
    (broken,) = [line for line in lines if line.startswith("BayesByBackprop")]
    assert broken.split()[1:] == ["2", *["nan"] * 6]
    assert [line for line in lines if line != broken] == before


def test_export_refuses(filled, tmp_path):
    with pytest.raises(BayesNormError, match=r"path: .*rows\.json is the name of the JSON file .* ends in \.csv"):
        export(filled, "tiny", tmp_path / "rows.json")
    with pytest.raises(BayesNormError, match="store: has no results of the preset 'quick'"):
        export(filled, "quick", tmp_path / "rows.csv")
    assert not [*tmp_path.glob("rows*")]


def test_export_reads_back(filled, tmp_path, monkeypatch):
    assert "summed seconds of runs" not in results.header(filled, "tiny"), "no run was noted"
    for ended, took, workers in (("a", 12.34, 2), ("b", 2.5, None)):
        monkeypatch.setattr(results, "datetime", Mock(now=Mock(return_value=Mock(isoformat=Mock(return_value=ended)))))
        note_run(filled, "tiny", seconds=took, workers=workers, finished=4)
    path = tmp_path / "rows.csv"
    export(filled, "tiny", path)
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    everything = rows(filled, "tiny")
    kept = [each for each in everything if each["chosen"] or each["method"] == "MCBN"]
    assert len(kept) < len(everything)
    assert len(found) == len(kept)
    for written, own in zip(found, kept, strict=True):
        assert [*written] == list(results.COLUMNS)
        for name, value in own.items():
            told = written[name]
            assert told == ("" if value is None else value if isinstance(value, str) else told)
            if isinstance(value, int | float):
                assert float(told) == pytest.approx(value, rel=5e-5), name
    head = json.loads(path.with_suffix(".json").read_text())
    assert head["preset"] == "tiny"
    assert head["units"] == {"bn": 2, "mnf": 2}
    assert head["network steps"] == {"bn": 200, "mnf": 200}
    assert head["seconds of units"] == {"bn": 4, "mnf": 4}
    assert (head["hardware"], head["torch"]) == (["a chip"], ["2"])
    assert head["summed seconds of runs"] == 15
    assert head["runs"] == ["4 units in 12 s, 2 at once", "4 units in 2 s"]
    assert [(each["dataset"], each["setting"]) for each in head["curves"]] == [("yacht", 16.0), ("yacht", 32.0)]
    assert [each["setting"] for each in head["points"]] == [32.0], "the size that split 1 chose for MCBN"
    assert "runs" not in {each["method"] for each in everything}


def test_export_feeds_the_papers_tables(filled, tmp_path):
    export(filled, "tiny", tmp_path / "rows.csv")
    for table, metric, place in ((4, "normalised_crps", 3), (5, "normalised_pll", 4), (6, "crps", 1), (7, "rmse", 0)):
        cells = compare(table, read_rows(tmp_path / "rows.csv"))
        (cell,) = (c for c in cells if (c.dataset, c.method, c.metric) == ("yacht", "MCBN", metric))
        scores = [s + place / 8 for s in (43.25, 43.5, 28.25, 28.5)]
        assert cell.runs == 4
        assert cell.ours == pytest.approx(statistics.fmean(scores), rel=5e-5)
        assert cell.our_error == pytest.approx(statistics.stdev(scores) / 2, rel=1e-3)
        assert cell.theirs is not None
    (at_32,) = (
        c for c in compare(8, read_rows(tmp_path / "rows.csv")) if (c.dataset, c.setting) == ("yacht", "M = 32")
    )
    assert at_32.runs == 4, "all runs of a size, chosen or not"
    assert at_32.ours == pytest.approx(statistics.fmean([43.25, 43.5, 44.25, 44.5]) + 3 / 8, rel=5e-5)


class Stop(Exception):
    """What ends a run early."""


@takes_long
def test_a_run_that_was_stopped_goes_on(tmp_path):
    asked = units("tiny", sets=["yacht"], methods=["MCBN", "MCDropout"])
    assert len(asked) == 3
    written = []
    for name, stops in (("whole", None), ("stopped", 2)):

        def progress(done, _total, stops=stops):
            if done == stops:
                raise Stop

        with Store(tmp_path / f"{name}.db") as store:
            if stops:
                with pytest.raises(Stop):
                    run_local(asked, store, workers=0, progress=progress)
                assert len(store.rows("uci-tiny")) == stops
                export(store, "tiny", tmp_path / "part.csv")
                asked = asked[::-1]  # another order is no other result
            tally = run_local(asked, store, workers=0)
            assert (tally.kept, tally.finished, tally.failed) == (stops or 0, 3 - (stops or 0), 0)
            export(store, "tiny", tmp_path / f"{name}.csv")
            told = summary(store, "tiny")
        written.append(((tmp_path / f"{name}.csv").read_bytes(), told))
    assert written[0] == written[1]
    assert (tmp_path / "part.csv").read_bytes() != written[0][0]
    found = read_rows(tmp_path / "whole.csv")
    methods = {each["method"] for each in found}
    assert methods == {name for name, family in FAMILIES.items() if family in ("bn", "dropout")}
    runs = Counter(each["method"] for each in found if each["chosen"] == "1" and not each["passes"])
    assert runs == {method: 2 if method == "DeepEnsemble" else 4 for method in methods}, "splits, and seeds"
    assert {cell.dataset for cell in compare(4, found) if cell.runs} == {"yacht"}
