"""What tests of whole numbers share: rows, networks and what is the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import bayesnorm as bn

generator = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=generator)
Y = X[:, :1] - X[:, 1:2] + 0.1 * torch.randn(60, 1, generator=generator)
LABELS = (Y[:, 0] > -0.5).long() + (Y[:, 0] > 0.5).long()


def network(outputs=1):
    torch.manual_seed(1)
    body = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 4))
    model = nn.Sequential(*body, nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, outputs))
    with torch.no_grad():
        for _ in range(20):
            model.train()(X)
    return model.eval()


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        f = self.inner(x)
        return f, 2 * f


def fitted(outputs=1):
    likelihood = bn.Gaussian(4.0) if outputs == 1 else bn.Categorical()
    return bn.MCBN(batch_size=8, states=8).fit(network(outputs), (X, Y), likelihood)


def assert_same(first, second):
    if isinstance(first, Tensor):
        torch.testing.assert_close(second, first, rtol=0, atol=0, equal_nan=True)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            assert_same(first[name], second[name])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert type(first) is type(second)
        assert first == second or first != first
