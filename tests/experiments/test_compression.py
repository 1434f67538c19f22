"""`python -m experiments compression` on digits that are made up, with a network of a few units."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from experiments import compression
from experiments.options import Size


def made_up(data, split, count, device):
    generator = torch.Generator().manual_seed(len(split))
    x = torch.randint(0, 256, (120, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return x, (x[:, 0, 0, 0] > 127).long()


def tiny():
    layers = [nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 6), nn.ReLU(), nn.Linear(6, 2)]
    return nn.Sequential(*layers)


def test_from_the_command(experiments, monkeypatch, tmp_path):
    monkeypatch.setattr(compression, "images", made_up)
    monkeypatch.setitem(compression.NETWORKS, "lenet-5-caffe", ("mnist", tiny))
    arguments = ("--network", "lenet-5-caffe", "--prior", "horseshoe", "--epochs", 2, "--kl-weight", 0.5)
    arguments += ("--tolerance", 0.001, "--tolerance", 0.02, "--out", tmp_path)
    ended = experiments("compression", *arguments)
    assert ended.code == 0, ended.err
    rows = json.loads((tmp_path / "compression.json").read_text())["rows"]
    assert [(row["tolerance"], row["taught"]) for row in rows] == [(0.001, 0), (0.001, 1), (0.02, 0), (0.02, 1)]
    assert all(row["bytes"][1] < row["bytes"][0] for row in rows)
    assert "| lenet-5-caffe | horseshoe, published | | | | 1.0 | 156x | 419x |" in ended.out
    assert all((row["epochs"], row["kl_weight"]) == (2, 0.5) for row in rows)
    kept = tmp_path / "compression"
    for tolerance in (0.001, 0.02):
        assert (kept / f"lenet-5-caffe_horseshoe_0.5_{tolerance}.png").read_bytes().startswith(b"\x89PNG")
    (kept / "lenet-5-caffe_horseshoe_0.5_2x120.bayesnorm").unlink()  # what was measured needs it no longer
    again = experiments("compression", *arguments)
    assert again.out == ended.out[-len(again.out) :]
    assert experiments("compression", "--network", "alexnet").code == 2
    assert "--kl-weight must be a positive number, got 0.0" in experiments("compression", "--kl-weight", 0).err


@pytest.mark.parametrize("judged_by", [10, 40, 500])
def test_thresholds_are_chosen_by_held_out_images_and_some_of_training(judged_by, monkeypatch, tmp_path):
    monkeypatch.setattr(compression, "images", made_up)
    preset = replace(compression.PRESETS[Size.quick], judged_by=judged_by)
    case = compression.Case(preset, "lenet-5-caffe", "horseshoe", tmp_path, "cpu")
    x, y = made_up("mnist", "train", None, "cpu")
    expected = torch.cat([torch.arange(96, 120), torch.arange(96)])[: max(judged_by, 24)]  # a fifth is held out
    for found, whole in zip(case._judging, (x, y), strict=True):
        assert torch.equal(found, whole[expected])
