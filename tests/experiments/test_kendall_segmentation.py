"""Doubts of pixels after Kendall and Gal: the smallest run, scores of a regression by hand, and verdicts."""

import json

import pytest
import torch

from experiments import kendall_segmentation
from experiments.kendall_segmentation import measuring, verdicts
from experiments.kendall_segmentation.red import LEVELS, red_scores

pytestmark = pytest.mark.filterwarnings("ignore:.*batches:bayesnorm.BayesNormWarning")


def test_command_trains_asks_and_judges(experiments, road_scenes, monkeypatch, tmp_path):
    preset = measuring.Preset("small-unet", "quick", 0.2, frames=8, epochs=1, samples=2, states=4, asked=None)
    monkeypatch.setitem(measuring.PRESETS, "quick", preset)
    monkeypatch.setattr(measuring, "SHARES", {"1/4": 2, "all": 1, "day": 1})
    monkeypatch.setattr(kendall_segmentation.showing, "SHARES", measuring.SHARES)
    drawn = []
    monkeypatch.setattr(kendall_segmentation, "write_picture", lambda path, picture: drawn.append(path.name))
    ended = experiments("kendall-segmentation", "--device", "cpu", "--out", tmp_path)
    assert ended.code == 0, ended.err
    found = json.loads((tmp_path / "kendall_segmentation.json").read_text())
    assert set(found["classes"]) == set(found["red"]) == set(measuring.SHARES)
    for kinds in found["classes"].values():
        for kind, lights in kinds.items():
            assert set(lights) == {"any", "day", "dusk"}
            drawn_uncertainty = lights["any"]["doubts"]["mutual information"]["mean"]
            assert (drawn_uncertainty > 1e-6) == (kind not in ("neither", "aleatoric"))
    whole, day, dusk = (found["red"]["all"]["MCBN"][light]["mean absolute error"] for light in ("any", "day", "dusk"))
    assert whole == pytest.approx((4 * day + 2 * dusk) / 6, rel=1e-4)  # frames of each light
    assert drawn == ["kendall_segmentation.png", "kendall_red.png", "kendall_red_maps.png"]
    assert "classes, dropout: epistemic uncertainty rises on another light" in ended.out
    # Networks on fewer frames take as many steps.
    made = measuring.Networks(preset, tmp_path, "cpu")
    assert made.plan(measuring.Task.classes, "1/4").recipe.epochs == 2


def test_scores_of_the_red_channel_by_hand():
    """Errors that come from the Laplace distribution that is said to be theirs."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([0.1, 0.4]).repeat_interleave(5000).view(1, 100, 100)
    error = torch.empty(1, 100, 100).exponential_(generator=generator) * scale
    found = red_scores(error, torch.full_like(error, 1e-6), 2 * scale.square())
    both = found["parts"]["both"]
    deviation = (0.25 * 2**0.5) / 1  # the mean of both deviations
    assert both["mean"] == pytest.approx(deviation, rel=1e-3)
    for level, covered in zip(LEVELS, both["covered"], strict=True):
        assert abs(covered - level) < 4 * (level * (1 - level) / 10_000) ** 0.5
    assert both["error of kept"][9] == pytest.approx(0.1, rel=0.06)  # the half that has little noise
    assert found["parts"]["epistemic"]["error of kept"][9] == pytest.approx(found["mean absolute error"], rel=0.1)


def lists(value, spread=0.01):
    return [value - spread, value + spread]


def test_verdicts_on_data_and_light():
    for part, numbers, expected in (
        ("epistemic", (0.4, 0.2, 0.2, 0.4), ["holds", "holds"]),
        ("epistemic", (0.2, 0.4, 0.4, 0.2), ["does not", "does not"]),
        ("aleatoric", (0.4, 0.41, 0.4, 0.41), ["holds", "holds"]),
        ("aleatoric", (0.4, 0.48, 0.4, 0.8), ["partly", "does not"]),
    ):
        found = verdicts._with_data_and_light("red", part, *(lists(number) for number in numbers))
        assert [claim.verdict for claim in found] == expected
