"""Experiments from the command at their smallest, and the files that they write."""

import csv
import dataclasses
import json
import math
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
from torch import nn

from bayesnorm.errors import BayesNormError
from experiments import (
    compare_methods,
    compression,
    kendall_uncertainty,
    known_noise,
    mukhoti_batch_size,
    noise_and_uncertainty,
    prune_channels,
    teye_uncertainty,
    uci_luck,
)
from experiments.compare_methods import compare, makers
from experiments.image_networks.asking import Asked
from experiments.image_networks.training import Plan
from experiments.kendall_uncertainty.gap import measure_gap
from experiments.measuring import timed
from experiments.networks import paper_mlp
from experiments.options import Size
from experiments.prune_channels import fine_tuning, measuring, showing
from experiments.prune_channels.presets import Preset, Way
from experiments.splits import Split

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")


def test_what_is_said_stands_beside_the_truth(experiments, tmp_path, monkeypatch):
    quick = {"encoding": "plain", "hidden": (20,), "dropout_rate": 0.0, "weight_decay": 0.01, "max_epochs": 40}
    monkeypatch.setitem(known_noise.OPTIONS, "quick", {**quick, "members": 3})
    monkeypatch.setattr(known_noise, "NEW_ROWS", 200)
    ended = experiments("known-noise", "--out", tmp_path)
    assert ended.code == 0, ended.err
    (row,) = json.loads((tmp_path / "known_noise.json").read_text())["rows"]
    assert row["noise"] == 1.0
    assert 0.3 < row["said_noise"] < row["rmse"], "noise is a part of the error"
    assert row["said_share"] < 1
    assert row["rmse"] ** 2 > row["uncertainty"] ** 2
    assert f"{row['rows']:,} rows" in ended.out
    again = experiments("known-noise", "--table", "friedman", "--out", tmp_path)
    assert again.out.strip() in ended.out
    assert experiments("known-noise", "--table", "iris").code == 2


def made_up_split(name, number, most):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(240, 2, generator=generator)
    y = x[:, :1] + 0.3 * torch.randn(240, 1, generator=generator)
    return Split((x[:120], y[:120]), (x[120:180], y[120:180]), (x[180:], y[180:]), number)


def test_noise_and_uncertainty(experiments, monkeypatch, tmp_path):
    monkeypatch.setattr(noise_and_uncertainty, "standardised_split", made_up_split)
    monkeypatch.setitem(noise_and_uncertainty.STEPS, "quick", 30)
    ended = experiments("noise-and-uncertainty", "--set", "yacht", "--out", tmp_path)
    assert ended.code == 0, ended.err
    rows = {row["form"]: row for row in json.loads((tmp_path / "noise_and_uncertainty.json").read_text())["rows"]}
    assert rows.keys() == {noise_and_uncertainty.CONSTANT, *noise_and_uncertainty.FORMS}
    assert rows[noise_and_uncertainty.CONSTANT]["nll_difference"] == 0
    assert abs(rows["rising"]["nll_difference"]) < 0.5
    assert "rising, no prior" in ended.out


def made_up_digits(data, split, count, device):
    generator = torch.Generator().manual_seed(len(split))
    x = torch.randint(0, 256, (120, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return x, (x[:, 0, 0, 0] > 127).long()


def tiny_digits():
    layers = [nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 6), nn.ReLU(), nn.Linear(6, 2)]
    return nn.Sequential(*layers)


def test_compression(experiments, monkeypatch, tmp_path):
    monkeypatch.setattr(compression, "images", made_up_digits)
    monkeypatch.setitem(compression.NETWORKS, "lenet-5-caffe", ("mnist", tiny_digits))
    arguments = ("--network", "lenet-5-caffe", "--prior", "horseshoe", "--epochs", 2, "--kl-weight", 0.5)
    arguments += ("--tolerance", 0.001, "--tolerance", 0.02, "--out", tmp_path)
    ended = experiments("compression", *arguments)
    assert ended.code == 0, ended.err
    rows = json.loads((tmp_path / "compression.json").read_text())["rows"]
    assert [(row["tolerance"], row["taught"]) for row in rows] == [(0.001, 0), (0.001, 1), (0.02, 0), (0.02, 1)]
    assert all(row["bytes"][1] < row["bytes"][0] for row in rows)
    assert "| lenet-5-caffe | horseshoe, published | | | | 1.0 | 156x | 419x |" in ended.out
    assert all((row["epochs"], row["kl_weight"]) == (2, 0.5) for row in rows)
    folder = tmp_path / "compression"
    for tolerance in (0.001, 0.02):
        assert (folder / f"lenet-5-caffe_horseshoe_0.5_{tolerance}.png").read_bytes().startswith(b"\x89PNG")
    (folder / "lenet-5-caffe_horseshoe_0.5_2x120.bayesnorm").unlink()  # what was measured needs it no longer
    again = experiments("compression", *arguments)
    assert again.out == ended.out[-len(again.out) :]
    assert experiments("compression", "--network", "alexnet").code == 2
    assert "--kl-weight must be a positive number, got 0.0" in experiments("compression", "--kl-weight", 0).err


@pytest.mark.parametrize("judged_by", [10, 40, 500])
def test_thresholds_are_chosen_by_held_out_images_and_some_of_training(judged_by, monkeypatch, tmp_path):
    monkeypatch.setattr(compression, "images", made_up_digits)
    preset = replace(compression.PRESETS[Size.quick], judged_by=judged_by)
    case = compression.Case(preset, "lenet-5-caffe", "horseshoe", tmp_path, "cpu")
    x, y = made_up_digits("mnist", "train", None, "cpu")
    expected = torch.cat([torch.arange(96, 120), torch.arange(96)])[: max(judged_by, 24)]  # a fifth is held out
    for result, whole in zip(case._judging, (x, y), strict=True):
        assert torch.equal(result, whole[expected])


def made_up_images(count, seed):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return pixels, torch.arange(count) % 10


def tiny_images(depth):
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10)).eval()


def test_prune_channels(experiments, monkeypatch, tmp_path):
    scaled = Plan.from_preset("resnet20").transform().scaled
    asked = Asked(
        scaled(made_up_images(20, 1)[0]), made_up_images(20, 1)[1], {"svhn": scaled(made_up_images(20, 2)[0])}
    )
    monkeypatch.setattr(Plan, "load", lambda plan, split: made_up_images(16, 0))
    monkeypatch.setattr(measuring, "load_asked", lambda plan, outside, count, device: asked)
    monkeypatch.setattr(measuring, "load_cifar_resnet", tiny_images)
    for module in (prune_channels, showing):
        monkeypatch.setattr(module, "CRITERIA", ("signal",))
    monkeypatch.setattr(fine_tuning, "BATCH_SIZE", 4)
    ways = Way(0.01), Way(0.01, temperature=4, batch_size=4, hints=1, blocks=True)
    small = Preset(20, (0.6,), images=16, asked=20, states=4, ways=ways)
    monkeypatch.setitem(prune_channels.PRESETS, "quick", small)
    ended = experiments("prune-channels", "--out", tmp_path)
    assert ended.code == 0, ended.err
    told = json.loads((tmp_path / "prune_channels.json").read_text())
    rows, chosen = told["rows"], told["ways"]
    assert {way["temperature"] for way in chosen} == {None, 4}
    assert chosen[0]["accuracy"] >= chosen[1]["accuracy"]
    whole = [("none", 0), ("none, softmax", 0), ("int8, softmax", 0)]
    tuned = [("signal", 0), ("signal", 2), ("signal", 2)]
    assert [(row["criterion"], row["epochs"]) for row in rows] == [*whole, *tuned]
    assert [row["tuned"] for row in rows] == ["", "", "", "", "labels", "whole network"]
    assert rows[4]["share"] == rows[5]["share"] == rows[3]["share"]
    assert rows[4]["nll"] != rows[5]["nll"]
    assert rows[3]["share"] <= 0.6
    assert rows[2]["bytes"] < rows[3]["bytes"] < 1
    assert abs(rows[1]["nll"] - rows[2]["nll"]) < 0.1
    assert "| signal | 0." in ended.out
    assert (tmp_path / "prune_channels.png").exists()


@pytest.fixture(scope="module")
def toy():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_methods, "DRAWS", 32)
        patch.setattr(compare_methods, "MEMBERS", 2)
        patch.setattr(compare_methods, "median_seconds", lambda call, _repeats: timed(call))
        return compare("toy", 1, steps=60)


def test_every_method_is_scored(toy):
    assert toy.keys() == makers().keys()
    for name, (score,) in toy.items():
        assert all(math.isfinite(value) for value in asdict(score).values()), name
        assert score.crps > 0
        assert score.samples_per_second > 0


def test_uncertainty_grows_away_from_the_data(toy):
    for name, (score,) in toy.items():
        if name != "constant":
            assert score.growth > 1.2, name


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
    result = written("methods", picture=False)
    assert result.keys() == {"splits", "toy", "yacht"}
    assert [run["crps"] for run in result["toy"]["MCBN"]] == [0.5, 0.5]


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
    result = written("batch_size")
    assert (result["samples"], result["training images"]) == (8, 50)
    for kind in ("real", "effective"):
        assert [row["batch_size"] for row in result[kind]] == [8, 32]
        assert all(row["validation"] is not None for row in result[kind])
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


CURVE = [
    {"effective_batch_size": size, "normalised_crps_mean": score, "normalised_crps_error": 0.5}
    for size, score in ((16.0, -90.0), (64.0, -5.0), (256.0, 10.0), (8192.0, 2.0))
]


def header(preset="quick"):
    points = {"error": [0.1, -0.5, 2.0], "std": [0.5, 1.0, 1.5], "constant_std": [1.0]}
    return {
        "preset": preset,
        "curves": [{"dataset": "yacht", "setting": 32.0, "curve": CURVE}],
        "points": [{"dataset": "yacht", "family": "bn", "setting": 32.0, "points": points}],
    }


def result_rows(preset="quick"):
    shared = {"preset": preset, "dataset": "yacht", "method": "MCBN", "setting": "128.0"}
    scores = [("", 8.0), ("", 10.0), ("2", 1.0), ("2", 2.0)]
    results = [shared | {"passes": t, "normalised_crps": str(v), "normalised_pll": str(-v)} for t, v in scores]
    return [*results, {**results[0], "setting": "64.0"}, {**results[0], "method": "MCBN centred"}]


def test_pictures_are_drawn_of_what_there_is(tmp_path, capsys):
    table = tmp_path / "uci quick.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, result_rows()[0].keys())
        writer.writeheader()
        writer.writerows(result_rows())
    with pytest.raises(BayesNormError, match=r"--rows: .*uci quick\.json does not exist. Run `python -m"):
        teye_uncertainty.main(table, tmp_path / "out")
    table.with_suffix(".json").write_text(json.dumps(header()))
    teye_uncertainty.main(table, tmp_path / "out")
    drawn = ["uci_batch_size.png", "uci_samples.png", "uci_uncertainty.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == drawn
    assert sorted(line.rsplit("/", 1)[-1] for line in capsys.readouterr().out.split("\n")[:-1]) == drawn
