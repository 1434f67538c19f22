"""Real and effective batch sizes of one small classifier: the same where they are the same, and both curves whole."""

from __future__ import annotations

import json

import pytest
import torch

from experiments.mukhoti_batch_size import FITTED, compare
from experiments.networks import paper_mlp

SIZES = (8, FITTED, 64)


@pytest.fixture(scope="module")
def comparison():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    network = paper_mlp(4, 3, (8, 8), eps=1e-5).eval()
    return compare(network, (x[:80], y[:80]), (x[80:], y[80:]), batch_sizes=SIZES, samples=16, train_rows=800)


def test_every_size_is_bounded_and_scored(comparison):
    for choice in (comparison.real, comparison.effective):
        assert [row.batch_size for row in choice.rows] == list(SIZES)
        assert all(row.validation is not None for row in choice.rows)
    assert json.loads(json.dumps(comparison.as_json()))["real"][0]["elbo"] == comparison.real.rows[0].elbo
    assert comparison.table().count("<- chosen") == 2
