"""Raw units outside, standardised ones inside."""

from __future__ import annotations

import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.training import Rescaled


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 20, 0.1]) + 5
    y = torch.randn(50, 2, generator=generator, dtype=torch.float64) * torch.tensor([3.0, 0.5]) - 7
    return x, y


def test_training_rows_are_standardised_with_the_populations_formula():
    x, y = data()
    inner_x, inner_y = Rescaled.from_data(nn.Identity(), x, y).standardise(x, y)
    for value in (inner_x, inner_y):
        torch.testing.assert_close(value.mean(0), torch.zeros(value.shape[1], dtype=torch.float64), rtol=0, atol=1e-12)
        torch.testing.assert_close(value.var(0, correction=0), torch.ones(value.shape[1], dtype=torch.float64))


def test_outputs_are_in_raw_units():
    x, y = data()
    inner = nn.Linear(3, 2).double()
    network = Rescaled.from_data(inner, x, y)
    expected = inner((x - x.mean(0)) / x.std(0, correction=0)) * y.std(0, correction=0) + y.mean(0)
    torch.testing.assert_close(network(x), expected)


def test_a_constant_column_gets_a_standard_deviation_of_one():
    x, y = data()
    x[:, 1], y[:, 0] = 4.0, 2.0
    network = Rescaled.from_data(nn.Identity(), x, y)
    assert network.x_std[1] == 1
    assert network.y_std[0] == 1
    inner_x, inner_y = network.standardise(x, y)
    assert torch.equal(inner_x[:, 1], torch.zeros(50, dtype=torch.float64))
    assert torch.equal(inner_y[:, 0], torch.zeros(50, dtype=torch.float64))


def test_scales_travel_with_the_network_and_are_not_trained():
    x, y = data()
    network = Rescaled.from_data(nn.Linear(3, 2).double(), x, y)
    assert {"x_mean", "x_std", "y_mean", "y_std"} <= network.state_dict().keys()
    assert [name for name, _ in network.named_parameters()] == ["network.weight", "network.bias"]
    assert network.float().x_mean.dtype == torch.float32
    x[:] = 0
    assert (network.x_mean != 0).all(), "they are copies"


def test_precision_and_uncertainty_of_a_rescaled_network_are_in_raw_units():
    """Law 7: the variance of raw outputs is y_std^2 times that of standardised ones."""
    x, y = data()
    inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double().eval()
    network = Rescaled.from_data(inner, x, y).eval()
    raw = bn.MCBN(batch_size=8, states=20).fit(network, x, bn.Gaussian()).predict(x)
    inner_x, _ = network.standardise(x, y)
    inside = bn.MCBN(batch_size=8, states=20).fit(inner, inner_x, bn.Gaussian()).predict(inner_x)
    torch.testing.assert_close(raw.epistemic, inside.epistemic * y.var(0, correction=0))
    torch.testing.assert_close(raw.mean, inside.mean * y.std(0, correction=0) + y.mean(0))
