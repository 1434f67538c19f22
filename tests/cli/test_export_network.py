"""`bayesnorm export`: a network as an ONNX file, and a model repository for Triton."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn

pytest.importorskip("typer", reason="needs the extra cli: pip install typer rich")
pytest.importorskip("onnxruntime", reason="needs the extra onnx: pip install onnx onnxscript onnxruntime")
pytest.importorskip("onnxscript", reason="needs the extra onnx: pip install onnx onnxscript onnxruntime")

from bayesnorm.cli.app import run
from bayesnorm.export import open_onnx
from bayesnorm_runtime import Network

NETWORK = """from torch import nn


def make():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write a network with its posterior, and return the options that name them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exported_network.py").write_text(NETWORK)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model(torch.randn(64, 3))
    torch.save(model.eval().state_dict(), "w.pt")
    bn.MCBN(batch_size=16, states=8).fit(model, torch.randn(64, 3), bn.Categorical()).save("net.bayesnorm")
    return ["--model", "exported_network:make", "--weights", "w.pt", "--posterior", "net.bayesnorm", "--shape", "3"]


def test_a_network_becomes_a_file_and_a_repository(network: list[str], capsys: pytest.CaptureFixture[str]):
    words = ["export", *network, "net.onnx", "--triton", "models", "--samples", "8", "--watch"]
    assert run(words) == 0, capsys.readouterr().err
    file = open_onnx("net.onnx")
    assert [tensor.shape for tensor in file.inputs] == [(3,)]
    assert [tensor.name for tensor in file.outputs] == ["probs", "label", "entropy", "mutual_information"]
    assert Path("models/net/1/model.onnx").read_bytes() == Path("net.onnx").read_bytes()
    from exported_network import make

    model = make()
    model.load_state_dict(torch.load("w.pt", weights_only=True))
    x = torch.randn(5, 3)
    probs = file.session.run(["probs"], {file.inputs[0].name: x.numpy()})[0]
    expected = bn.load("net.bayesnorm", model.eval()).predict(x, samples=8).probs.numpy()
    np.testing.assert_allclose(probs, expected, atol=1e-6)
    assert 0 < Network("net.onnx").drift(x.numpy()).p_value <= 1
    assert "input_mean" not in Path("models/net/config.pbtxt").read_text()
    assert "forward passes" in capsys.readouterr().err
    for words in (["net.onnx", *network], ["net.onnx", "--triton", "models"]):
        assert run(["export", *words]) != 0
        assert "--force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["net.onnx"], "Pass what to export"),
        (["missing.onnx", "--triton", "models"], "does not exist"),
        (["net.onnx", "--model", "exported_network:make"], "--posterior"),
        (["net.onnx", "--triton", "models", "--level", "1"], "between 0 and 1"),
    ],
)
def test_wrong_options_are_refused(
    network: list[str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["export", *words]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
