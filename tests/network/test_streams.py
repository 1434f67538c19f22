"""Loaders that are read as a stream: the global generators are neither used nor changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import bayesnorm as bn

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))


class Rows(IterableDataset):
    """Rows with a little of the global generator's noise, drawn when iteration is asked for."""

    def __iter__(self):
        order = torch.randperm(len(X))
        return iter(X[order] + 0.01 * torch.randn(len(X), 3))


STREAMS = {
    "own sampler": lambda: DataLoader(TensorDataset(X), 8, sampler=WeightedRandomSampler(torch.ones(60), 60)),
    "loader of a stream": lambda: DataLoader(Rows(), 8),
    "stream": Rows,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_read_with_randomness_of_its_own(kind):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).eval()
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(bn.MCBN(batch_size=8, states=5).fit(model, STREAMS[kind]()).batch_mean)
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*found)
