"""Exported files predict what the posterior predicts, in onnxruntime and torch, or are not written."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.export import exporting, quantiles

onnxruntime = pytest.importorskip("onnxruntime")

ENGINE = bn.MonteCarlo(6)


@pytest.fixture(scope="module")
def classifier():
    """Return a fitted posterior whose network has an input called `mean`, and inputs for it."""

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

        def forward(self, mean):
            h = self.norm(self.conv(mean)).relu()
            return self.head(h.mean((2, 3)))

    torch.manual_seed(0)
    x = torch.randn(40, 2, 5, 5)
    return bn.MCBN(batch_size=8).fit(Network().eval(), x, bn.Categorical(temperature=1.4)), x


@pytest.fixture(scope="module")
def onnx_file(classifier, tmp_path_factory):
    posterior, x = classifier
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    return bn.export(posterior, path, x[:1], engine=ENGINE), path


def test_onnx_gives_the_posteriors_predictions_for_any_number_of_examples(classifier, onnx_file):
    (posterior, x), (written, path) = classifier, onnx_file
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] == ["mean"]  # made from one example
    for rows in (1, 3, 40):
        values = dict(zip(written.outputs, session.run(None, {"mean": x[:rows].numpy()}), strict=True))
        predictive = posterior.predict(x[:rows], engine=ENGINE)
        for name in ("probs", "label", "entropy", "mutual_information"):
            np.testing.assert_allclose(values[name], getattr(predictive, name).numpy(), rtol=1e-4, atol=1e-6)
    assert written.largest_difference < 1e-5
    assert written.size == path.stat().st_size


def test_the_file_says_what_it_is_and_nothing_of_the_machine(onnx_file):
    written, path = onnx_file
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    description = json.loads(session.get_modelmeta().custom_metadata_map["bayesnorm"])
    assert description["largest_difference"] == written.largest_difference
    assert (description["samples"], description["method"]) == (6, "MCBN")
    assert description["compared_batches"] == [1, 2, 7, 33]
    assert description["likelihood"] == {"kind": "Categorical", "temperature": 1.4}
    assert not re.search(rb"\.py|/tmp|/root|/home", path.read_bytes())


def test_a_program_of_torch_export_gives_the_same(classifier, tmp_path):
    posterior, x = classifier
    numbers = {"seed": np.int64(0), "level": np.float32(0.5)}  # NumPy's, which the JSON of a file cannot hold
    written = bn.export(posterior, tmp_path / "net.pt2", x[:4], engine=ENGINE, **numbers)
    assert written.largest_difference < 1e-5
    program = torch.export.load(tmp_path / "net.pt2").module()
    for rows in (1, 3):
        predictive = posterior.predict(x[:rows], engine=ENGINE)
        torch.testing.assert_close(program(x[:rows])["probs"], predictive.probs, rtol=1e-4, atol=1e-6)


def test_regression_with_several_inputs_and_intervals(tmp_path, monkeypatch):
    monkeypatch.setattr(quantiles, "STEPS", 6)  # enough here, and a smaller graph is exported faster

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.norm, self.head = nn.Embedding(5, 3), nn.BatchNorm1d(5), nn.Linear(5, 1)

        def forward(self, numbers, kind):
            return self.head(self.norm(torch.cat([numbers, self.embedding(kind)], 1)).tanh())

    x = {"numbers": torch.randn(40, 2), "kind": torch.arange(40) % 5}
    posterior = bn.MCBN(batch_size=8).fit(Two().double().eval(), x, bn.Gaussian(4.0))
    written = bn.export(posterior, tmp_path / "two.onnx", x, samples=4)
    assert written.inputs == ("numbers", "kind")
    assert written.outputs == ("predictive_mean", "epistemic_std", "aleatoric_std", "lower", "upper")
    assert written.largest_difference < 1e-5  # the network is in double precision, the file in single


def test_a_file_that_differs_is_not_written(classifier, tmp_path, monkeypatch):
    posterior, x = classifier
    path = tmp_path / "net.pt2"
    path.write_bytes(b"earlier")
    seeds = iter((0, 1, 2, 3, 4, 5))
    monkeypatch.setattr(bn.MonteCarlo, "forward_passes", lambda self, p, seed: (p.passes(6, next(seeds)), 6))
    with pytest.raises(bn.BayesNormError, match=r"gives another \w+ than the posterior: .* Nothing was written"):
        bn.export(posterior, path, x[:4], engine=ENGINE)
    assert path.read_bytes() == b"earlier"
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.pt2"]


def test_impossible_paths_and_precisions_are_refused_before_work(classifier, tmp_path, monkeypatch):
    posterior, x = classifier
    monkeypatch.setattr(exporting, "as_module", lambda *_: pytest.fail("work was done"))
    with pytest.raises(bn.BayesNormError, match=r'must end with "\.onnx" or "\.pt2"'):
        bn.export(posterior, tmp_path / "net.bin", x)
    for name, value in (("seed", -1), ("level", 1.0), ("level", "0.5")):
        with pytest.raises(bn.BayesNormError, match=f"{name} must be"):
            bn.export(posterior, tmp_path / "net.pt2", x, **{name: value})
    with pytest.raises(bn.BayesNormError, match="does not exist"):
        bn.export(posterior, tmp_path / "missing" / "net.onnx", x)
    with pytest.raises(bn.BayesNormError, match=r"Use posterior\.to\(torch\.float32\)"):
        bn.export(posterior.to(torch.bfloat16), tmp_path / "net.onnx", x)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda p: p["label"].__iadd__(1), "label"),
        (lambda p: p["entropy"].__iadd__(0.01), "entropy"),
        (lambda p: p["mutual_information"].__setitem__(0, np.nan), "mutual_information"),
    ],
)
def test_differences_are_seen(change, wrong):
    probs = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    expected = {"probs": probs, "label": probs.argmax(1), "entropy": np.ones(2), "mutual_information": np.full(2, 0.1)}
    values = {name: value.copy() for name, value in expected.items()}
    assert exporting.largest_error(values, expected) == (0.0, "")
    change(values)
    difference, name = exporting.largest_error(values, expected)
    assert name == wrong
    assert not difference <= 1e-3
