"""Networks of the road scenes: scores of pixels, training, and both experiments at their smallest."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import bayesnorm as bn
from experiments import kendall_segmentation, teye_figure2
from experiments.data import CAMVID_VOID
from experiments.image_networks.training import trained_network
from experiments.kendall_segmentation import measuring as kendall_measuring, verdicts as kendall_verdicts
from experiments.kendall_segmentation.red import LEVELS, red_scores
from experiments.segmentation import frames as frames_module, pixels, plans
from experiments.segmentation.frames import Light, load_frames
from experiments.segmentation.pixels import BINS, Frames, ask, scores
from experiments.segmentation.plans import SegmentationPlan, Task
from experiments.segmentation.scores import boundary_distance, confusion_matrix, patches, segmentation_scores
from experiments.teye_figure2 import measuring, verdicts

pytestmark = pytest.mark.filterwarnings("ignore:.*batches:bayesnorm.BayesNormWarning")


TRUE = torch.tensor([[[0, 0, 1, 1], [0, 0, 1, 9]]])
SEEN = torch.tensor([[[0, 1, 1, 1], [0, 0, 0, 0]]])


def test_counts_and_scores_by_hand():
    counts = confusion_matrix(SEEN, TRUE, 3, ignore_index=9)
    assert counts.tolist() == [[3, 1, 0], [1, 2, 0], [0, 0, 0]]
    scores = segmentation_scores(counts)
    assert float(scores.global_accuracy) == pytest.approx(5 / 7)
    assert float(scores.class_accuracy) == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert scores.iou[:2].tolist() == pytest.approx([3 / 5, 2 / 4])
    assert math.isnan(scores.iou[2])  # neither there nor predicted
    assert float(scores.mean_iou) == pytest.approx((3 / 5 + 2 / 4) / 2)


def test_patches_by_hand():
    """Four patches of 2 x 2 pixels: right and sure, right and unsure, wrong and sure, wrong and unsure."""
    y = torch.zeros(1, 4, 4, dtype=torch.long)
    label = y.clone()
    label[0, 2:] = 1
    uncertainty = torch.zeros(1, 4, 4)
    uncertainty[0, :, 2:] = 1.0
    label[0, 0, 0] = 1  # three of four are still more than a half
    y[0, 0, 2] = 7  # void
    uncertainty[0, 0, 2] = 50.0
    result = patches(label, uncertainty, y, size=2, ignore_index=7)
    assert result.accurate.tolist() == [True, True, False, False]
    assert result.uncertainty.tolist() == [0.0, 1.0, 0.0, 1.0]
    at = result.at([-1.0, 0.5, 2.0])
    assert at.pavpu.tolist() == [2 / 4, 2 / 4, 2 / 4]  # none is certain; half; all are
    assert at.uncertain_if_inaccurate.tolist() == [1, 1 / 2, 0]
    assert at.accurate_if_certain[1:].tolist() == [1 / 2, 2 / 4]
    assert math.isnan(at.accurate_if_certain[0])
    half = patches(label, uncertainty, y, size=2, least=0.8, ignore_index=7)
    assert half.accurate.tolist() == [False, True, False, False]


def test_distances_by_hand():
    y = torch.tensor([[[0, 0, 0, 1], [0, 0, 9, 1], [0, 0, 0, 1]]])
    result = boundary_distance(y, ignore_index=9)
    assert result[0, 0].tolist() == [3, 2, 1, 1]
    assert result[0, 1, [0, 1, 3]].tolist() == pytest.approx([3, 2, math.sqrt(2)])  # across the void pixel
    assert math.isnan(result[0, 1, 2])
    assert torch.isinf(boundary_distance(torch.zeros(1, 2, 2, dtype=torch.long))).all()


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


def test_kendall_segmentation(experiments, road_scenes, monkeypatch, tmp_path):
    preset = kendall_measuring.Preset("small-unet", "quick", 0.2, frames=8, epochs=1, samples=2, states=4, asked=None)
    monkeypatch.setitem(kendall_measuring.PRESETS, "quick", preset)
    monkeypatch.setattr(kendall_measuring, "SHARES", {"1/4": 2, "all": 1, "day": 1})
    monkeypatch.setattr(kendall_segmentation.showing, "SHARES", kendall_measuring.SHARES)
    drawn = []
    monkeypatch.setattr(kendall_segmentation, "write_picture", lambda path, picture: drawn.append(path.name))
    ended = experiments("kendall-segmentation", "--device", "cpu", "--out", tmp_path)
    assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "kendall_segmentation.json").read_text())
    assert set(content["classes"]) == set(content["red"]) == set(kendall_measuring.SHARES)
    for kinds in content["classes"].values():
        for kind, lights in kinds.items():
            assert set(lights) == {"any", "day", "dusk"}
            drawn_uncertainty = lights["any"]["doubts"]["mutual information"]["mean"]
            assert (drawn_uncertainty > 1e-6) == (kind not in ("neither", "aleatoric"))
    whole, day, dusk = (content["red"]["all"]["MCBN"][light]["mean absolute error"] for light in ("any", "day", "dusk"))
    assert whole == pytest.approx((4 * day + 2 * dusk) / 6, rel=1e-4)  # frames of each light
    assert drawn == ["kendall_segmentation.png", "kendall_red.png", "kendall_red_maps.png"]
    assert "classes, dropout: epistemic uncertainty rises on another light" in ended.out
    # Networks on fewer frames take as many steps.
    made = kendall_measuring.Networks(preset, tmp_path, "cpu")
    assert made.plan(kendall_measuring.Task.classes, "1/4").recipe.epochs == 2


def test_scores_of_the_red_channel_by_hand():
    """Errors that come from the Laplace distribution that is said to be theirs."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([0.1, 0.4]).repeat_interleave(5000).view(1, 100, 100)
    error = torch.empty(1, 100, 100).exponential_(generator=generator) * scale
    result = red_scores(error, torch.full_like(error, 1e-6), 2 * scale.square())
    both = result["parts"]["both"]
    deviation = (0.25 * 2**0.5) / 1  # the mean of both deviations
    assert both["mean"] == pytest.approx(deviation, rel=1e-3)
    for level, covered in zip(LEVELS, both["covered"], strict=True):
        assert abs(covered - level) < 4 * (level * (1 - level) / 10_000) ** 0.5
    assert both["error of kept"][9] == pytest.approx(0.1, rel=0.06)  # the half that has little noise
    assert result["parts"]["epistemic"]["error of kept"][9] == pytest.approx(result["mean absolute error"], rel=0.1)


def lists(value, spread=0.01):
    return [value - spread, value + spread]


def test_kendall_verdicts():
    for part, numbers, expected in (
        ("epistemic", (0.4, 0.2, 0.2, 0.4), ["holds", "holds"]),
        ("epistemic", (0.2, 0.4, 0.4, 0.2), ["does not", "does not"]),
        ("aleatoric", (0.4, 0.41, 0.4, 0.41), ["holds", "holds"]),
        ("aleatoric", (0.4, 0.48, 0.4, 0.8), ["partly", "does not"]),
    ):
        result = kendall_verdicts._with_data_and_light("red", part, *(lists(number) for number in numbers))
        assert [claim.verdict for claim in result] == expected


def test_teye_figure2(experiments, road_scenes, monkeypatch, tmp_path):
    short = replace(plans.RECIPES["quick"][""], epochs=1, batch_size=4)
    monkeypatch.setitem(plans.RECIPES, "quick", {"": short})
    preset = measuring.Preset("small-segnet", "quick", 0.2, (2, 4), 3, 6, 3, members=2, frames=4, validation=2)
    monkeypatch.setitem(measuring.PRESETS, "quick", preset)
    monkeypatch.setattr(measuring, "SHOWN", (0.5,))
    drawn = []
    monkeypatch.setattr(teye_figure2, "write_picture", lambda path, picture: drawn.append(path.name))
    command = ["teye-figure2", "--device", "cpu", "--out", tmp_path]
    ended = experiments(*command)
    assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "teye_figure2.json").read_text())
    methods = content["methods"]
    assert {"softmax", "MC dropout", "ensemble", "MCBN as published, first 2 layers, M = 2"} <= set(methods)
    for name, method in methods.items():
        doubts = method["doubts"]
        parts = doubts["mutual information"]["mean"] + doubts["expected entropy"]["mean"]
        assert parts == pytest.approx(doubts["entropy"]["mean"], abs=1e-5)
        assert (doubts["mutual information"]["mean"] < 1e-5) == name.startswith("softmax")
    assert {"seen", "verdict", "words"} == set(content["claims"][0])
    assert drawn == ["teye_figure2.png", "teye_figure2_maps_0.png"]
    monkeypatch.setattr(measuring, "scores", None)  # everything was kept
    monkeypatch.setattr(teye_figure2.showing, "draw_frame", lambda *_, photos: photos)
    again = experiments(*command, "--photos")
    assert again.code == 0, again.err
    assert again.out.splitlines()[-8:] == ended.out.splitlines()[-8:]
    assert drawn[-1] == "teye_figure2_maps_0_photo.png"


def test_scores_of_pixels_by_hand(monkeypatch):
    """Two frames of two columns: class 0 on the left, which is always right, class 1 on the right, half of it wrong."""
    y = torch.zeros(2, 4, 4, dtype=torch.long)
    y[:, :, 2:] = 1
    y[0, 0, 0] = CAMVID_VOID
    logits = torch.full((2, 11, 4, 4), -20.0)
    logits[:, 0] = 0.0
    logits[:, 1] = -2.0
    logits[:, 1, :2, 2:] = 2.0
    logits[:, 1, 2:, 2:] = -0.1  # wrong, and in uncertainty

    network = torch.nn.Conv2d(11, 11, 1, bias=False)
    torch.nn.init.dirac_(network.weight)  # hands on the logits that it is given
    frames = Frames.with_distances(logits, y)
    monkeypatch.setattr(pixels, "AT_ONCE", 1)
    result = scores(ask(bn.deterministic(network, bn.Categorical(ignore_index=CAMVID_VOID)), frames, 5), frames)
    assert result["accuracy"] == pytest.approx(1 - 8 / 31)
    assert result["doubts"]["entropy"]["auroc"] == 1.0
    assert result["doubts"]["entropy"]["auroc of frames"] == [1.0, 1.0]
    assert result["pixels by distance"][BINS[0]] == 16
    assert result["error by distance"][BINS[0]] == pytest.approx(4 / 16)
    assert result["error by distance"][BINS[1]] == pytest.approx(4 / 15)
    assert result["doubts"]["entropy"]["error of kept"][-1] == pytest.approx(8 / 31)
    assert "auroc" not in result["doubts"]["mutual information"]  # a softmax has none
    log_prob = torch.log_softmax(logits, 1).gather(1, y.where(y != CAMVID_VOID, 0)[:, None])[:, 0]
    assert result["nll"] == pytest.approx(float(-log_prob[y != CAMVID_VOID].mean()), rel=1e-5)
    method = result["ece by predicted class"]
    assert method["sky"] is not None
    assert method["car"] is None


def made_up(auroc, near=0.1, far=0.01, tenths=None, nll=1.0):
    uncertainty = {
        "auroc of frames": [auroc + 0.01, auroc - 0.01],
        "by distance": {name: near if name in verdicts.NEAR else far for name in BINS},
        "error of deciles": tenths or [number / 10 for number in range(10)],
    }
    return {
        "doubts": {"mutual information": uncertainty, "entropy": uncertainty},
        "nll of frames": [nll, nll + 0.1],
        "pixels by distance": dict.fromkeys(BINS, 10),
    }


def test_teye_figure2_verdicts():
    for measured, expected in (
        (made_up(0.9), ["holds", "holds", "holds"]),
        (made_up(0.6, near=0.015, tenths=[0.1, 0.2, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]), ["partly"] * 3),
        (made_up(0.4, near=0.001, tenths=[1.0] * 10), ["does not"] * 3),
    ):
        claim_of = (verdicts._reasonable, verdicts._at_boundaries, verdicts._grows)
        assert [claim(measured).verdict for claim in claim_of] == expected
