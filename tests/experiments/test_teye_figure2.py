"""Figure 2 of the MCBN paper: the smallest run of it, scores of pixels, and verdicts of made-up numbers."""

import json
from dataclasses import replace

import pytest
import torch

import bayesnorm as bn
from experiments import teye_figure2
from experiments.data import CAMVID_VOID
from experiments.segmentation import pixels, plans
from experiments.segmentation.pixels import BINS, Frames, ask, scores
from experiments.teye_figure2 import measuring, verdicts

pytestmark = pytest.mark.filterwarnings("ignore:.*batches:bayesnorm.BayesNormWarning")


def test_command_trains_asks_and_judges(experiments, road_scenes, monkeypatch, tmp_path):
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
    found = json.loads((tmp_path / "teye_figure2.json").read_text())
    methods = found["methods"]
    assert {"softmax", "MC dropout", "ensemble", "MCBN as published, first 2 layers, M = 2"} <= set(methods)
    for name, own in methods.items():
        doubts = own["doubts"]
        parts = doubts["mutual information"]["mean"] + doubts["expected entropy"]["mean"]
        assert parts == pytest.approx(doubts["entropy"]["mean"], abs=1e-5)
        assert (doubts["mutual information"]["mean"] < 1e-5) == name.startswith("softmax")
    assert {"seen", "verdict", "words"} == set(found["claims"][0])
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
    found = scores(ask(bn.deterministic(network, bn.Categorical(ignore_index=CAMVID_VOID)), frames, 5), frames)
    assert found["accuracy"] == pytest.approx(1 - 8 / 31)
    assert found["doubts"]["entropy"]["auroc"] == 1.0
    assert found["doubts"]["entropy"]["auroc of frames"] == [1.0, 1.0]
    assert found["pixels by distance"][BINS[0]] == 16
    assert found["error by distance"][BINS[0]] == pytest.approx(4 / 16)
    assert found["error by distance"][BINS[1]] == pytest.approx(4 / 15)
    assert found["doubts"]["entropy"]["error of kept"][-1] == pytest.approx(8 / 31)
    assert "auroc" not in found["doubts"]["mutual information"]  # a softmax has none
    log_prob = torch.log_softmax(logits, 1).gather(1, y.where(y != CAMVID_VOID, 0)[:, None])[:, 0]
    assert found["nll"] == pytest.approx(float(-log_prob[y != CAMVID_VOID].mean()), rel=1e-5)
    own = found["ece by predicted class"]
    assert own["sky"] is not None
    assert own["car"] is None


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


def test_verdicts():
    for measured, expected in (
        (made_up(0.9), ["holds", "holds", "holds"]),
        (made_up(0.6, near=0.015, tenths=[0.1, 0.2, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]), ["partly"] * 3),
        (made_up(0.4, near=0.001, tenths=[1.0] * 10), ["does not"] * 3),
    ):
        claim_of = (verdicts._reasonable, verdicts._at_boundaries, verdicts._grows)
        assert [claim(measured).verdict for claim in claim_of] == expected
