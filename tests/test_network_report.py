"""`bn.doctor` and `bayesnorm doctor`: one screen about any network, and no traceback."""

import json
import sys
import warnings

import pytest
import torch
from torch import nn

import bayesnorm as bn

IMAGES = torch.randn(64, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def convolutional():
    torch.manual_seed(0)
    body = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()


@pytest.fixture(autouse=True)
def no_export(monkeypatch):
    """`torch.export` imports a compiler, which takes seconds."""
    monkeypatch.setattr(torch.export, "export", lambda *args, **options: None)


def texts(report):
    return {finding.subject: (finding.grade, finding.text) for finding in report.findings}


def test_one_screen_says_what_works_what_it_costs_and_what_to_do(snapshot):
    model = convolutional()
    before = snapshot(model)
    report = bn.doctor(model, IMAGES, batch_size=8)
    assert snapshot(model) == before
    findings = texts(report)
    assert findings["batch norm"] == ("good", "1 layer, 4 channels")
    assert "shape (3,)" in findings["output"][1]
    assert "yes" in findings["vectorised"][1]
    for name in ("one forward pass", "MonteCarlo(64)", "SigmaPoints(8)", "Delta()"):
        assert "ms for 8 examples" in findings[name][1]
    assert "rejected" in findings["batch statistics"][1]
    lines = str(report).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert "bn.MCBN(batch_size=8)" in str(report)
    assert len(repr(report)) < 100
    assert report.to_dict()["findings"][1]["subject"] == "batch norm"
    page = report.to_html()
    assert "<h2>Recommended</h2>" in page
    assert "width=device-width" in page


def test_a_network_of_torchscript_is_not_one_without_batch_norm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        report = bn.doctor(torch.jit.script(convolutional()), IMAGES)
    assert "it is a TorchScript module, whose layers are not accessible" in texts(report)["layers"][1]
    assert report.recommendations == ("Pass the nn.Module that the network was made from.",)


def test_a_failing_export_prints_nothing(monkeypatch, capsys):
    def export(*_arguments, **_options):
        print("a graph of many lines", file=sys.stderr)
        raise ValueError("depends on data")

    monkeypatch.setattr(torch.export, "export", export)
    assert texts(bn.doctor(convolutional(), IMAGES, batch_size=8))["export"][1] == "failed: ValueError: depends on data"
    assert not capsys.readouterr().err


def test_data_scaled_otherwise_than_in_training_are_noticed():
    model = convolutional()
    with torch.no_grad():
        model[1].momentum = None
        model.train()(IMAGES)
    model.eval()
    assert texts(bn.doctor(model, IMAGES, batch_size=8))["running statistics"][0] == "good"
    report = bn.doctor(model, 255 * IMAGES, batch_size=8)
    assert texts(report)["running statistics"][0] == "problem"
    assert "scale the data as in training" in report.recommendations[0]


class TwoInputs(nn.Module):
    """Returns a dict, of which one entry is a tensor."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(5, 2)

    def forward(self, first, second):
        return {"count": 3, "scores": self.head(torch.cat([self.norm(first), second], 1))}


class Detector(nn.Module):
    """Returns one dict per image."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return [{"boxes": boxes} for boxes in self.norm(x).flatten(1)]


def test_several_inputs_and_outputs():
    data = {"first": torch.randn(40, 3), "second": torch.randn(40, 2)}
    findings = texts(bn.doctor(TwoInputs().eval(), data))
    assert "entry 'scores'" in findings["output"][1]
    assert findings["batch size"][0] == "note"
    assert not [text for grade, text in findings.values() if text.startswith("failed")]


class Scaled(nn.Module):
    """Needs an argument that is no input."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x, *, scale):
        return self.head(self.norm(x)) * scale


def test_arguments_that_are_no_inputs():
    x = torch.randn(40, 3)
    report = bn.doctor(Scaled().eval(), x, batch_size=8, forward_kwargs={"scale": 2.0})
    assert not [finding for finding in report.findings if finding.grade == "problem"]
    without = bn.doctor(Scaled().eval(), x, batch_size=8)
    assert "forward_kwargs=" in texts(without)["fit"][1]
    assert "forward_kwargs=" in " ".join(str(without).split())
    assert any("bn.deterministic" in advice for advice in without.recommendations)


def test_frozen_layers_are_named():
    model = convolutional()
    for weight in model[1].parameters():
        weight.requires_grad_(False)
    grade, text = texts(bn.doctor(model, IMAGES, batch_size=8))["fit warns"]
    assert grade == "note"
    assert "may have been frozen in training" in text


def test_what_fails_is_a_line():
    report = bn.doctor(Detector().eval(), IMAGES)
    assert "no tensor with one entry per example" in texts(report)["fit"][1]
    assert "needs only" not in str(report)
    wrong = texts(bn.doctor(convolutional(), IMAGES[:, :2]))["fit"]
    assert wrong[0] == "problem"
    assert "channels" in wrong[1]
    with pytest.raises(bn.BayesNormError, match=r"model must be a torch\.nn\.Module, got str"):
        bn.doctor("network")


def test_networks_without_batch_norm_get_advice():
    layers = nn.Linear(3, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.Linear(4, 2)
    report = bn.doctor(nn.Sequential(*layers), torch.randn(20, 3))
    assert "1 LayerNorm, 1 GroupNorm" in texts(report)["other norms"][1]
    assert "bn.add_dropout" in report.recommendations[0]
    dropout = bn.doctor(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2)))
    assert "bn.MCDropout" in dropout.recommendations[0]
    assert "Pass training data" in bn.doctor(convolutional()).recommendations[0]


MODULE = """
from torch import nn
def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
"""


def test_the_command_reads_images_and_writes_a_page(tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install pillow")
    app = pytest.importorskip("bayesnorm.cli.app", reason="needs typer: pip install typer")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examined_net.py").write_text(MODULE)
    (tmp_path / "images").mkdir()
    for index in range(20):
        image.new("RGB", (8, 8), (12 * index, 40, 200 - index)).save(tmp_path / "images" / f"{index}.png")
    assert app.run(["doctor", "examined_net:make", "--data", "images", "--html", "page.html", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"subject": "batch norm", "text": "1 layer, 4 channels", "grade": "good"} in report["findings"]
    assert "<table>" in (tmp_path / "page.html").read_text()
    assert app.run(["doctor", "examined_net:make"]) == 0
    assert "Recommended:" in capsys.readouterr().out
    assert app.run(["doctor", "missing_net:make"]) != 0
    assert "MODULE:FUNCTION: missing_net cannot be imported" in capsys.readouterr().err
