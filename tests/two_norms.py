"""What tests of exact formulas share: rows and a small network in double precision, and how close is the same."""

from __future__ import annotations

import torch
from torch import nn

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

TIGHT = {"rtol": 1e-9, "atol": 1e-12}


def rows(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network():
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)
    ).double()
