"""Kernels for the papers' networks: which stacks they are for."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.tabular.stacked import HalfSquaredError, Stack
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.stacked_networks import fit_stacked, standardised_rows
from experiments.stacked_networks.fused import fused_passes
from experiments.stacked_networks.fused.fused_block import trains
from experiments.stacked_networks.fused.shape import fitting, shape_of


def normalised(inputs=5, hidden=(50, 50), outputs=1, bias=False, eps=(1e-10, 1e-10)):
    """`paper_mlp`, or nearly."""
    layers, before = [], inputs
    for width, value in zip(hidden, eps, strict=False):
        layers += [nn.Linear(before, width, bias=bias), nn.BatchNorm1d(width, eps=value), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, outputs))


FITTING = {
    "50": paper_mlp(13),
    "100": paper_mlp(9, hidden=(100, 100)),
    "128": paper_mlp(128, hidden=(128, 128)),
    "dropout": paper_dropout_mlp(8, 0.05),
    "wide dropout": paper_dropout_mlp(9, 0.05, hidden=(100, 100)),
    "by hand": normalised(),
}
OTHERS = {
    "three layers": paper_mlp(5, hidden=(50, 50, 50)),
    "one layer": paper_mlp(5, hidden=(50,)),
    "three layers of dropout": paper_dropout_mlp(5, 0.1, hidden=(50, 50, 50)),
    "unequal widths": paper_mlp(5, hidden=(50, 40)),
    "unequal widths of dropout": paper_dropout_mlp(5, 0.1, hidden=(40, 50)),
    "two outputs": paper_mlp(5, 2),
    "two outputs of dropout": paper_dropout_mlp(5, 0.1, 2),
    "too wide": paper_mlp(5, hidden=(129, 129)),
    "too many inputs": paper_mlp(129),
    "biases before batch norm": normalised(bias=True),
    "two epsilons": normalised(eps=(1e-5, 1e-3)),
    "no last bias": nn.Sequential(*paper_mlp(5)[:-1], nn.Linear(50, 1, bias=False)),
    "batch norm and dropout": nn.Sequential(*paper_mlp(5)[:-1], nn.Dropout(0.1), nn.Linear(50, 1)),
    "no dropout of inputs": paper_dropout_mlp(5, 0.1)[1:],
}


@pytest.mark.parametrize("name", FITTING)
def test_networks_of_the_papers_fit(name):
    network = FITTING[name]
    stack = Stack.from_networks([network])
    shape = fitting(stack.layers)
    first, *_, last = (layer for layer in network if isinstance(layer, nn.Linear))
    assert (shape.inputs, shape.width) == (first.in_features, last.in_features)
    assert max(16, shape.inputs) <= shape.D
    assert max(16, shape.width) <= shape.H
    assert shape.D & (shape.D - 1) == shape.H & (shape.H - 1) == 0, "powers of two"
    assert (len(shape.norms), len(shape.drops)) == ((0, 3) if "dropout" in name else (2, 0))
    where = {f"at_{short}": stack.weights[f"{long}"] for short, long in _named(shape).items()}
    result = shape.places(stack.weights)
    assert result.keys() == where.keys()
    for key, tensor in where.items():
        assert torch.equal(stack.weights.flat.flatten()[result[key] :][: tensor.numel()], tensor.flatten()), key


def _named(shape):
    names = {f"w{i}": f"{dense}.weight" for i, dense in enumerate(shape.dense, 1)} | {"b3": f"{shape.dense[2]}.bias"}
    for i in (1, 2):
        if shape.norms:
            names |= {f"g{i}": f"{shape.norms[i - 1]}.weight", f"b{i}": f"{shape.norms[i - 1]}.bias"}
        else:
            names |= {f"b{i}": f"{shape.dense[i - 1]}.bias"}
    return names


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_do_not(name):
    assert fitting(Stack.from_networks([OTHERS[name]]).layers) is None


def test_nothing_of_this_on_a_cpu():
    stack = Stack.from_networks([paper_mlp(5)])
    assert shape_of(stack) is None
    assert not trains(stack, settings())
    rows = standardised_rows(torch.randn(40, 5), torch.randn(40), [torch.arange(40)])
    assert fused_passes.statistics(stack, rows, torch.zeros(1, 2, 32).long(), torch.zeros(1).long(), 32) is None
    states = fit_stacked(bn.MCBN(32, states=4), stack, rows).sample(4)
    assert fused_passes.moments(stack, states, torch.randn(1, 3, 5)) is None


def settings(**options):
    arguments = {"batch_size": 32, "loss": HalfSquaredError(), "decay": torch.zeros(1, dtype=torch.float64), **options}
    return SimpleNamespace(**{"schedule": None, "decoupled": False, **arguments})
