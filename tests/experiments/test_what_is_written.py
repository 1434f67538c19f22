"""The files that experiments write: numbers under the machine that they were made on, and pictures."""

import dataclasses
import json
from functools import partial

import pytest
import torch

from experiments import compare_methods, kendall_uncertainty, mukhoti_batch_size, uci_luck
from experiments.kendall_uncertainty.gap import measure_gap
from experiments.networks import paper_mlp

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")


@pytest.fixture
def written(tmp_path):
    """`written("name")`: the numbers in the folder "out", of which the machine is there; with a picture beside them."""

    def read(name, picture=True):
        if picture:
            assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        content = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert {"device", "threads", "torch", "python", "bayesnorm", "date"} <= content.pop("machine").keys()
        return content

    return read


def test_compare_methods(experiments, tmp_path, monkeypatch, written):
    score = compare_methods.Score(**{field.name: 0.5 for field in dataclasses.fields(compare_methods.Score)})
    monkeypatch.setattr(compare_methods, "compare", lambda name, count, progress: {"MCBN": [score] * count})
    ended = experiments("compare-methods", "--set", "toy", "--set", "yacht", "--splits", 2, "--out", tmp_path / "out")
    assert ended.code == 0
    assert "toy, mean of 2 splits" in ended.out
    found = written("methods", picture=False)
    assert found.keys() == {"splits", "toy", "yacht"}
    assert [run["crps"] for run in found["toy"]["MCBN"]] == [0.5, 0.5]


@pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")
def test_kendall_uncertainty(experiments, tmp_path, monkeypatch, written):
    monkeypatch.setitem(
        kendall_uncertainty.EVIDENCE, kendall_uncertainty.Picture.gap, partial(measure_gap, steps=4, rows=80)
    )
    ended = experiments("kendall-uncertainty", "gap", "--out", tmp_path / "out")
    assert ended.code == 0
    assert ended.out.startswith("gap: ")
    assert written("noise_gap")["epistemic"].keys() == {"MCBN", "MCBN, M' chosen", "5 networks"}


def test_mukhoti_batch_size(experiments, tmp_path, monkeypatch, written):
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    rows = {"train": (x, (x[:, 0] > 0).long()), "test": (x[:20], (x[:20, 0] > 0).long())}
    compare = partial(mukhoti_batch_size.compare, batch_sizes=(8, 32))
    stand_ins = {
        "load_cifar10": rows.get,
        "to_network_input": lambda pixels: pixels,
        "load_cifar_resnet": lambda depth: paper_mlp(4, 2, (8, 8)).eval(),
        "compare": compare,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(mukhoti_batch_size, name, stand_in)
    arguments = ("--device", "cpu", "--images", 50, "--samples", 8, "--out", tmp_path / "out")
    ended = experiments("mukhoti-batch-size", *arguments)
    assert ended.code == 0
    assert ended.out.startswith("real batches")
    found = written("batch_size")
    assert (found["samples"], found["training images"]) == (8, 50)
    for kind in ("real", "effective"):
        assert [row["batch_size"] for row in found[kind]] == [8, 32]
        assert all(row["validation"] is not None for row in found[kind])
    assert ended.out.count("<- chosen") == 2


def test_uci_luck_goes_on_where_it_was(experiments, require, tmp_path, monkeypatch, written):
    require("uci/yacht.npz")
    asked = []

    def scores_at(dataset, size, repeat, device):
        asked.append((repeat, size))
        if asked == [(1, 32.0), (1, 64.0)]:
            raise KeyboardInterrupt
        scores = {name: [repeat + size] * 25 for name in ("rmse", "crps", "normalised_crps")}
        return {"repeat": repeat, "batch size": size, "cv_rmse": [size] * 5, **scores}

    monkeypatch.setattr(uci_luck, "scores_at", scores_at)
    arguments = ("uci-luck", "--set", "yacht", "--repeats", 2, "--device", "cpu", "--out", tmp_path / "out" / "l.json")
    assert experiments(*arguments).code == 130
    ended = experiments(*arguments)
    assert ended.code == 0
    assert asked == [(1, 32.0), (1, 64.0), (1, 64.0), (1, 128.0), (2, 32.0), (2, 64.0), (2, 128.0)]
    assert "repeat 2: RMSE 34.000 ± 0.000" in ended.out
    assert len(written("l", picture=False)["rows"]) == 6
