"""`python -m experiments temperature`: what it remembers, how it judges, and the command at its smallest."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import bayesnorm as bn
from experiments.networks import CifarResNet
from experiments.temperature import measuring
from experiments.temperature.judging import CALIBRATE, CONSTANT, Judged
from experiments.temperature.uncertainty import covariates

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")


def test_differences_are_those_of_images():
    """An image that judges twice counts once, with the mean of both."""
    constant, other = Judged(3), Judged(3)
    for rows, gain in (([0, 1], [0.1, 0.3]), ([1, 2], [0.5, -0.2])):
        constant.add(torch.tensor(rows), torch.ones(2))
        other.add(torch.tensor(rows), 1 + torch.tensor(gain), batch_size=rows[0])
    result = other.summary(constant)
    gains = np.array([0.1, 0.4, -0.2])
    assert result["difference"] == pytest.approx(gains.mean(), abs=1e-6)
    assert result["standard_error"] == pytest.approx(gains.std(ddof=1) / 3**0.5, abs=1e-6)
    assert result["worst_fold"] == pytest.approx(0.2, abs=1e-6)
    assert result["batch_size"] == [0, 1]


def test_what_samples_tell_is_what_numpy_says():
    f = np.random.default_rng(0).normal(size=(6, 3, 4)) * 3
    logits = f.mean(0)
    results = {name: values.numpy() for name, values in covariates(torch.tensor(f), torch.tensor(logits)).items()}
    order = np.argsort(-logits, 1)
    first, second = (np.take_along_axis(f, order[None, :, [k]], 2)[..., 0] for k in (0, 1))
    probs = np.exp(f) / np.exp(f).sum(-1, keepdims=True)
    entropy = [-(p * np.log(p)).sum(-1) for p in (probs.mean(0), probs)]
    expected = {
        "logits": f.var(0).mean(-1),
        "margin": (first - second).var(0, ddof=1),
        "largest logit": first.var(0, ddof=1),
        "mutual information": entropy[0] - entropy[1].mean(0),
    }
    assert results.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], np.log(values), rtol=1e-6)


def images(split, rows=None):
    random = np.random.default_rng(split == "test")
    return random.integers(0, 256, (64, 32, 32, 3), np.uint8)[:rows], random.integers(0, 10, 64)[:rows]


@pytest.mark.filterwarnings("ignore:.*look random:bayesnorm.BayesNormWarning")
def test_from_the_command(experiments, monkeypatch, tmp_path):
    monkeypatch.setattr(measuring, "load_cifar10", images)
    monkeypatch.setattr(measuring, "load_svhn", lambda rows: images("test", rows))
    short = replace(measuring.PRESETS["quick"], images=(24, 24), validation=((8,), (8,)), corrupted=8, folds=2)
    monkeypatch.setitem(measuring.PRESETS, "quick", short)
    monkeypatch.setattr(
        measuring, "fitted", lambda network, x, keep: bn.MCBN(8, states=8).fit(network, x, bn.Categorical())
    )
    save_file(CifarResNet(20).state_dict(), tmp_path / "own.safetensors")
    arguments = ("resnet20", "--weights", tmp_path / "own.safetensors", "--name", "own", "--out", tmp_path)
    for part, method in (("calibrate", CALIBRATE), ("uncertainty", "rising, guarded")):
        ended = experiments("temperature", part, *arguments)
        assert ended.code == 0, ended.err
        content = json.loads((tmp_path / f"temperature_{part}_own.json").read_text())
        by_method = {row["method"]: row for row in content["rows"] if row.get("listens_to", "logits") == "logits"}
        assert by_method[CONSTANT]["difference"] == 0
        assert len(by_method[method]["temperature"]) == 2
        assert "last 1" in ended.out
    (shifted,) = content["corrupted"]
    assert shifted["corruption"] == "contrast"
    assert {row["listens_to"] for row in content["rows"]} == {"logits", "margin", "largest logit", "mutual information"}
    assert 0 <= content["outside"][0][CONSTANT] <= 1
    assert f"severity 3: {CONSTANT}" in ended.out
