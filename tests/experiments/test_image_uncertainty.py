"""Experiments on the uncertainty of image classifiers: the smallest of each, from images to verdicts."""

import json

import numpy as np
import pytest
import torch

import bayesnorm as bn
from experiments import uncertainty_and_data
from experiments.atanov_table1 import measuring as atanov
from experiments.image_networks.asking import Asked, uncertainty_scores
from experiments.mukhoti_figure1 import measuring as mukhoti, showing as mukhoti_showing
from experiments.pieces import measured_once

pytestmark = pytest.mark.filterwarnings("ignore:.*batches:bayesnorm.BayesNormWarning")


@pytest.fixture
def clothes_and_digits(small_sets):
    """Fashion-MNIST and MNIST with 64 training and 20 test images."""
    small_sets("fashion-mnist", "mnist", train=64, test=20)


def test_mukhoti_figure1_trains_measures_and_judges(experiments, clothes_and_digits, monkeypatch, tmp_path):
    panel = mukhoti.Setting("lenet5", "fashion-mnist", "mnist", "resnet50")
    preset = mukhoti.Preset(
        panels={"clothes": panel},
        recipe="paper",
        epochs={8: 2, 32: 2},
        one_for_all=8,
        effective=(8, 32),
        asked=None,
        bound_rows=16,
        bound_samples=2,
        mean_field_epochs=1,
    )
    monkeypatch.setitem(mukhoti.PRESETS, "quick", preset)
    monkeypatch.setattr(mukhoti, "DRAWS", 4)
    monkeypatch.setattr(mukhoti, "STATES", 8)
    ended = experiments("mukhoti-figure1", "--device", "cpu", "--out", tmp_path / "new")
    assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "new" / "mukhoti_figure1.json").read_text())
    clothes = content["panels"]["clothes"]
    assert set(clothes["retrained"]) == set(clothes["effective"]) == {"8", "32"}
    assert set(clothes["others"]) == {"dropout", "dropout and MCBN", "mean field"}
    # At the size it was fitted with, the effective batch size changes nothing.
    assert clothes["effective"]["8"] == clothes["retrained"]["8"]
    smaller, larger = (clothes["effective"][size]["inside"]["mutual information"][0] for size in ("8", "32"))
    assert larger < smaller
    assert any(claim["claim"].startswith("table 1, clothes, M = 32") for claim in content["claims"])
    assert (tmp_path / "new" / "mukhoti_figure1.png").exists()
    monkeypatch.setattr(mukhoti, "trained_network", None)  # everything was kept
    again = experiments("mukhoti-figure1", "--device", "cpu", "--out", tmp_path / "new")
    assert again.out.splitlines()[1:] == ended.out.splitlines()[-len(again.out.splitlines()) + 1 :]


def test_mukhoti_verdicts():
    def scores(accuracy, inside, outside, auroc):
        uncertainty = {"mean": [outside, 0.0], "auroc": auroc}
        return {
            "accuracy": accuracy,
            "inside": {"mutual information": [inside, 0.0]},
            "outside": {"mnist": {"mutual information": uncertainty}},
        }

    panel = {"data": "fashion-mnist", "outside": "mnist", "paper_network": "resnet50", "network": "resnet18"}
    results = {
        "a": {"panel": panel, "retrained": {"32": scores(0.93, 0.1, 0.2, 0.9), "2048": scores(0.9, 0.001, 0.1, 0.88)}}
    }
    verdicts = [claim["verdict"] for claim in mukhoti_showing.claims(results)]
    # Accuracy fell by .03; outside, mutual information only halved; ranking stayed; .93 is near .9343, .9 not .9387.
    assert verdicts == ["does not", "partly", "does not", "holds", "does not"]


def test_atanov_table1_trains_measures_and_judges(experiments, clothes_and_digits, monkeypatch, tmp_path):
    setting = atanov.Setting("lenet5", "mnist", "fashion-mnist", "lenet5")
    preset = atanov.Preset({"digits": setting}, "paper", members=2, batch_size=8, epochs=2, states=8, samples=4)
    monkeypatch.setitem(atanov.PRESETS, "quick", preset)
    ended = experiments("atanov-table1", "--device", "cpu", "--out", tmp_path / "new")
    assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "new" / "atanov_table1.json").read_text())
    # All ten cells of the paper's first network.
    assert len(content["cells"]) == 10
    assert {cell["verdict"] for cell in content["cells"]} <= {"holds", "does not"}
    methods = content["settings"]["digits"]["methods"]
    assert methods["DeepEnsemble"]["nll"][1] is None
    assert methods["softmax"]["nll"][1] > 0
    assert methods["DeepEnsemble"]["nll"][0] <= methods["softmax"]["nll"][0]  # by convexity, on the same networks
    assert "lenet5 on 64 images of mnist" in ended.out
    assert (tmp_path / "new" / "atanov_figure1.png").exists()


def test_uncertainty_and_data_trains_measures_and_judges(experiments, small_sets, monkeypatch, tmp_path):
    small_sets("cifar10", "cifar100", train=64, test=20)
    preset = uncertainty_and_data.Preset("lenet5", "paper", (40, 64), epochs=1, most_epochs=2, members=2)
    monkeypatch.setitem(uncertainty_and_data.PRESETS, uncertainty_and_data.Size.quick, preset)
    ended = experiments("uncertainty-and-data", "--device", "cpu", "--out", tmp_path / "new")
    assert ended.code == 0, ended.err
    assert "svhn: left out" in ended.out
    content = json.loads((tmp_path / "new" / "uncertainty_and_data.json").read_text())
    assert [(row["images"], row["method"]) for row in content["rows"]] == [
        (count, method) for count in (40, 64) for method in ("MCBN", "ensemble")
    ]
    assert len(content["claims"]) == 8
    for row in content["rows"]:
        parts = (row["inside"][uncertainty][0] for uncertainty in ("mutual information", "expected entropy"))
        assert sum(parts) == pytest.approx(row["inside"]["entropy"][0], abs=1e-5)


def test_uncertaintys_of_a_network_that_knows_nothing_outside():
    asked = Asked(torch.zeros(50, 1), torch.zeros(50, dtype=torch.long), {"strange": torch.ones(40, 1)})

    def predict(x):
        sure = torch.tensor([4.0, 0.0]) * (1 - x)  # both classes alike for strange rows
        return bn.Categorical().predictive(torch.stack([sure, sure]))

    result = uncertainty_scores(predict, asked)
    assert result["accuracy"] == 1
    strange = result["outside"]["strange"]["entropy"]
    assert strange["mean"] == pytest.approx((np.log(2), 0), abs=1e-6)
    assert (strange["auroc"], strange["fpr95"]) == (1, 0)
    assert result["outside"]["strange"]["mutual information"]["auroc"] == 0.5
    assert result["inside"]["mutual information"][0] == pytest.approx(0, abs=1e-6)


def test_pieces_are_measured_once_unless_settings_change(tmp_path):
    seen = []

    def measure():
        seen.append(1)
        return {"value": (1, 2)}

    for settings, times in (({"a": 1}, 1), ({"a": 1}, 1), ({"a": 2}, 2)):
        assert measured_once(tmp_path / "new" / "piece.json", settings, measure) == {"value": [1, 2]}
        assert len(seen) == times
