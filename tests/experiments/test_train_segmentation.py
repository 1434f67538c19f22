"""Networks of the road scenes: frames, weights and tasks."""

import json

import numpy as np
import pytest
import torch

from experiments.image_networks.training import trained_network
from experiments.segmentation import frames as frames_module
from experiments.segmentation.frames import Light, load_frames
from experiments.segmentation.plans import SegmentationPlan, Task


def plan(task=Task.classes, **changes):
    changes = {"epochs": 2, "batch_size": 4, "images": 8, "test_images": 5, **changes}
    return SegmentationPlan.from_preset("small-unet", task=task, **changes)


def test_frames_are_spread_and_of_the_light_asked_for(road_scenes):
    x, y = load_frames("train")
    assert x.shape == (10, 3, 24, 32)
    assert y.shape == (10, 24, 32)
    few, _ = load_frames("train", 4, step=2)
    assert torch.equal(few, x[[0, 2, 5, 7], :, ::2, ::2])
    dusk, day = (load_frames("train", light=light)[0] for light in (Light.dusk, Light.day))
    assert torch.equal(torch.cat([dusk, day]), x)
    assert len(dusk) == frames_module.DUSK_FRAMES["train"]


def test_command_trains_writes_and_shows_again(experiments, road_scenes, tmp_path):
    command = ["train-segmentation", "small-unet", "--epochs", 2, "--images", 8, "--batch-size", 4, "--device", "cpu"]
    command += ["--out", tmp_path]
    ended = experiments(*command)
    assert ended.code == 0, ended.err
    assert "small-unet on 8 frames: mean IoU" in ended.out
    assert "SegNet from scratch" in ended.out
    told = json.loads((tmp_path / "small-unet_classes_0.json").read_text())
    assert (told["task"], told["light"], told["step"]) == ("classes", "any", 2)
    assert 0 < told["mean IoU"] <= told["accuracy"] <= 1
    assert experiments(*command).out == ended.out
    assert "describes another network" in experiments(*command, "--light", "day").err


@pytest.mark.parametrize("task", Task)
def test_every_task_trains_and_is_scored_as_it_is_read_back(task, road_scenes, tmp_path):
    made = plan(task)
    network, told = trained_network(made, tmp_path, "net")
    scores = made.score(network, *made.load("test"))
    assert scores.pop("IoU", None) == told.get("IoU")
    assert scores == pytest.approx({key: told[key] for key in scores}, rel=1e-4)
    assert all(np.isfinite(told["losses"]))
