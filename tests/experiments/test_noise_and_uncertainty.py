"""`python -m experiments noise-and-uncertainty` on rows that are made up."""

import json

import torch

from experiments import noise_and_uncertainty
from experiments.splits import Split


def made_up(name, number, most):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(240, 2, generator=generator)
    y = x[:, :1] + 0.3 * torch.randn(240, 1, generator=generator)
    return Split((x[:120], y[:120]), (x[120:180], y[120:180]), (x[180:], y[180:]), number)


def test_from_the_command(experiments, monkeypatch, tmp_path):
    monkeypatch.setattr(noise_and_uncertainty, "standardised_split", made_up)
    monkeypatch.setitem(noise_and_uncertainty.STEPS, "quick", 30)
    ended = experiments("noise-and-uncertainty", "--set", "yacht", "--out", tmp_path)
    assert ended.code == 0, ended.err
    rows = {row["form"]: row for row in json.loads((tmp_path / "noise_and_uncertainty.json").read_text())["rows"]}
    assert rows.keys() == {noise_and_uncertainty.CONSTANT, *noise_and_uncertainty.FORMS}
    assert rows[noise_and_uncertainty.CONSTANT]["nll_difference"] == 0
    assert abs(rows["rising"]["nll_difference"]) < 0.5
    assert "rising, no prior" in ended.out
