"""`python -m experiments prune-channels` on images that are made up and a network that was not trained."""

import json

import torch
from torch import nn

from experiments import prune_channels
from experiments.image_networks.asking import Asked
from experiments.image_networks.training import Plan
from experiments.prune_channels import fine_tuning, measuring, showing
from experiments.prune_channels.presets import Preset, Way


def made_up(count, seed):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return pixels, torch.arange(count) % 10


def tiny(depth):
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10)).eval()


def test_from_the_command(experiments, monkeypatch, tmp_path):
    scaled = Plan.from_preset("resnet20").transform().scaled
    asked = Asked(scaled(made_up(20, 1)[0]), made_up(20, 1)[1], {"svhn": scaled(made_up(20, 2)[0])})
    monkeypatch.setattr(Plan, "load", lambda plan, split: made_up(16, 0))
    monkeypatch.setattr(measuring, "load_asked", lambda plan, outside, count, device: asked)
    monkeypatch.setattr(measuring, "load_cifar_resnet", tiny)
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
