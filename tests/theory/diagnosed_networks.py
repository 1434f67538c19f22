"""What tests of the diagnosis share: normal rows, and two kinds of networks."""

import torch
from torch import nn


def rows(n, columns, seed=0):
    return torch.randn(n, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def net():
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)
    ).double()


def on_inputs(columns, weight=None, eps=1e-5):
    """Batch norm of the inputs themselves, then their sum (or a weighted one)."""
    head = nn.Linear(columns, 1)
    nn.init.ones_(head.weight) if weight is None else head.weight.data.copy_(weight)
    return nn.Sequential(nn.BatchNorm1d(columns, eps=eps), head).double().eval()
