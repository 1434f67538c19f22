"""The MCBN paper's perceptron."""

import math

import torch
from torch import nn

from experiments.networks import paper_mlp


def test_layers_are_the_papers():
    model = paper_mlp(13)
    assert [type(layer) for layer in model] == [*[nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2, nn.Linear]
    assert [tuple(model[i].weight.shape) for i in (0, 3, 6)] == [(50, 13), (50, 50), (1, 50)]
    assert model[0].bias is None
    assert model[3].bias is None
    assert torch.equal(model[6].bias, torch.zeros(1))
    for layer in (model[1], model[4]):
        assert layer.eps == 1e-10
        assert torch.equal(layer.weight, torch.ones(50))
        assert torch.equal(layer.bias, torch.zeros(50))


def test_weights_are_a_normal_cut_at_two_standard_deviations():
    weight = paper_mlp(400, hidden=(500,))[0].weight.detach().double()
    assert weight.abs().max() <= 0.2 + 1e-6
    # Variance of N(0, 1) cut to [-2, 2]: 1 - 2 * 2 * phi(2) / (Phi(2) - Phi(-2)), 0.8796 squared.
    inside = math.erf(math.sqrt(2))
    exact_std = 0.1 * math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / inside)
    n = weight.numel()
    # A cut normal has lighter tails than a normal, so sigma / sqrt(2 n) bounds the standard error of its std.
    assert abs(weight.std() - exact_std) < 4 * exact_std / math.sqrt(2 * n)
    assert abs(weight.mean()) < 4 * exact_std / math.sqrt(n)
    # A share of erf(1/sqrt 2) / erf(sqrt 2) lies within one standard deviation of the uncut normal.
    share = math.erf(math.sqrt(0.5)) / inside
    observed = (weight.abs() < 0.1).double().mean()
    assert abs(observed - share) < 4 * math.sqrt(share * (1 - share) / n)
