"""Small networks that count their forward passes, and what is fitted on them once for all calls."""

from __future__ import annotations

import functools

import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.theory import unit_gaussians

generator = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=generator)
Y = X[:, :1] - X[:, 1:2] + 0.1 * torch.randn(60, 1, generator=generator)
LABELS = (Y[:, 0] > -0.5).long() + (Y[:, 0] > 0.5).long()

PASSES: list[int] = []
"""The number of rows in each forward pass of a `CountedNetwork` since the list was cleared."""


class CountedNetwork(nn.Sequential):
    """A small network that notes its forward passes."""

    def __init__(self, outputs=1):
        torch.manual_seed(1)
        body = [nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 4)]
        super().__init__(*body, nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, outputs))
        with torch.no_grad():
            for _ in range(20):
                self.train()(X)
        self.eval()

    def forward(self, x):
        PASSES.append(x.shape[-2])
        return super().forward(x)


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = CountedNetwork()

    def forward(self, x):
        f = self.inner(x)
        return f, 2 * f


@functools.cache
def network(outputs):
    """Return one trained network, which no call may change."""
    return CountedNetwork(outputs)


@functools.cache
def fitted(outputs):
    likelihood = bn.Gaussian(4.0) if outputs == 1 else bn.Categorical()
    return bn.MCBN(batch_size=8, states=8).fit(network(outputs), (X, Y), likelihood)


@functools.cache
def variational():
    return bn.BayesByBackprop(epochs=1).fit(network(1), (X, Y))


@functools.cache
def pruned():
    return bn.GroupNormalJeffreys(epochs=1).fit(network(1), (X, Y))


@functools.cache
def combination():
    return bn.combine(fitted(1), bn.MCDropout().fit(network(1), X))


@functools.cache
def predictive(outputs):
    return fitted(outputs).predict(X)


@functools.cache
def tasks():
    both = bn.MultiTask({"a": bn.Gaussian(), "b": (bn.Categorical(), 2)})
    return bn.deterministic(network(3), both).predict(X)


@functools.cache
def two_outputs():
    return TwoOutputs()


@functools.cache
def diagnosis():
    return bn.diagnose(network(1), X, 8, batches=20)


@functools.cache
def units():
    return unit_gaussians(network(1), X, 8)


def prepare():
    """Fit what calls share, so that its forward passes are not counted as theirs."""
    for outputs in (1, 2, 3):
        network(outputs)
    for make in (fitted, predictive):
        make(1), make(3)
    for make in (variational, pruned, combination, tasks, two_outputs, diagnosis, units):
        make()
