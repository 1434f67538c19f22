"""Moments of batch norm's inputs in a stack, from random batches, and what GaussianBN makes of them."""

from __future__ import annotations

import pytest
import torch

from bayesnorm.network import UnitMoments
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from bayesnorm.theory import central_limit, unit_gaussians
from experiments.networks import paper_mlp
from experiments.stacked_networks import stacked_moments, standardised_rows

M, COUNTS, WIDTH = 16, (96, 80), 10
SEEDS = 30
FAR = 6.0
"""Standard errors, themselves from 30 numbers, that the largest of some hundred differences stays within."""

PARTS = "mean_loc", "mean_var", "std_loc", "std_var"


@pytest.fixture(scope="module")
def task():
    """Two networks with rows of their own, some of which only one has; their rows in their units."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 4, generator=generator, dtype=torch.float64).exp()
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2]
    stack = Stack.from_networks([paper_mlp(4, hidden=(WIDTH, WIDTH), seed=i).double() for i in range(2)])
    rows = standardised_rows(x, y, [torch.randperm(100, generator=generator)[:n] for n in COUNTS])
    train_stacked(stack, rows, epochs=20, batch_size=M, loss=HalfSquaredError(), seeds=[0, 0], learning_rate=1e-2)
    return stack, rows, [rows.inputs()[i, :n] for i, n in enumerate(COUNTS)]


def gaussians(moments: UnitMoments, network: int):
    """The central-limit Gaussians of one network's units."""
    result = moments.statistics
    parts = result.mean[0], result.var[0], moments.mean_std.square(), moments.square_std.square()
    return central_limit(result.layers, *(part[network] for part in parts), result.batch_size)


def far(result, expected):
    """The largest distance of two means, (numbers, units) each, in standard errors; rounding is none."""
    error = sum(part.var(0) / len(part) for part in (result, expected)) + (1e-9 * expected.mean(0)).square() + 1e-24
    return float(((result.mean(0) - expected.mean(0)).abs() / error.sqrt()).max())


def test_moments_are_those_of_many_passes(task):
    """Random batches see what passes over all rows see, and beside it how far the passes' own means differ."""
    stack, rows, examples = task
    results = [stacked_moments(stack, rows, M, seed=seed) for seed in range(SEEDS)]
    for i, x in enumerate(examples):
        passes = [unit_gaussians(stack.network(i), x, M, seed=seed) for seed in range(SEEDS)]
        between = torch.stack([q.mean_loc for q in passes]).var(0)
        for name in PARTS:
            expected = torch.stack([getattr(q, name) for q in passes])
            if name == "mean_var":
                expected = expected + between / M
            elif name == "std_loc":
                expected = (expected.square() + between).sqrt()
            assert far(torch.stack([getattr(gaussians(one, i), name) for one in results]), expected) < FAR, name
    other = torch.stack([unit_gaussians(stack.network(0), examples[1], M, seed=s).mean_var for s in range(SEEDS)])
    assert far(torch.stack([gaussians(q, 0).mean_var for q in results]), other) > 2 * FAR, "other rows would be noticed"
