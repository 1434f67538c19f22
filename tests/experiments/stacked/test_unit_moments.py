"""Moments of batch norm's inputs in a stack, from random batches, and what GaussianBN makes of them."""

from __future__ import annotations

import pytest
import torch

import bayesnorm as bn
from bayesnorm.network import UnitMoments
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from bayesnorm.theory import central_limit, unit_gaussians
from experiments.networks import paper_mlp
from experiments.stacked_networks import (
    batchnorm_sampler,
    first_rows,
    in_target_units,
    stacked_moments,
    standardised_rows,
)

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
    found = moments.statistics
    parts = found.mean[0], found.var[0], moments.mean_std.square(), moments.square_std.square()
    return central_limit(found.layers, *(part[network] for part in parts), found.batch_size)


def far(found, expected):
    """The largest distance of two means, (numbers, units) each, in standard errors; rounding is none."""
    error = sum(part.var(0) / len(part) for part in (found, expected)) + (1e-9 * expected.mean(0)).square() + 1e-24
    return float(((found.mean(0) - expected.mean(0)).abs() / error.sqrt()).max())


def test_moments_are_those_of_many_passes(task):
    """Random batches see what passes over all rows see, and beside it how far the passes' own means differ."""
    stack, rows, own = task
    found = [stacked_moments(stack, rows, M, seed=seed) for seed in range(SEEDS)]
    for i, x in enumerate(own):
        passes = [unit_gaussians(stack.network(i), x, M, seed=seed) for seed in range(SEEDS)]
        between = torch.stack([q.mean_loc for q in passes]).var(0)
        for name in PARTS:
            expected = torch.stack([getattr(q, name) for q in passes])
            if name == "mean_var":
                expected = expected + between / M
            elif name == "std_loc":
                expected = (expected.square() + between).sqrt()
            assert far(torch.stack([getattr(gaussians(each, i), name) for each in found]), expected) < FAR, name
    other = torch.stack([unit_gaussians(stack.network(0), own[1], M, seed=s).mean_var for s in range(SEEDS)])
    assert far(torch.stack([gaussians(q, 0).mean_var for q in found]), other) > 2 * FAR, "other rows would be noticed"


def test_moments_of_one_batch_of_nearly_all_rows(task):
    """Where batches differ by one row only, there is hardly any chance: moments to the share of a row."""
    stack, rows, own = task
    size = COUNTS[1] - 1
    found = gaussians(stacked_moments(stack.take(torch.tensor([1])), rows.take(torch.tensor([1])), size), 0)
    expected = unit_gaussians(stack.network(1), own[1], size)
    h = own[1] @ stack.network(1)[0].weight.T
    deviation = h - h.mean(0)
    var, fourth = deviation.square().mean(0), deviation.pow(4).mean(0)
    first = slice(0, WIDTH)
    # Leaving out the row that is furthest off, in every batch alike, changes a mean of n numbers by its n-th part.
    for name, exact, powers in (
        ("mean_var", var / size, 2),
        ("std_loc", var.sqrt(), 2),
        ("std_var", (fourth - var.square()) / (4 * var * size), 4),
    ):
        share = (deviation.abs().amax(0) / var.sqrt()) ** powers / size
        assert ((getattr(found, name)[first] / exact - 1).abs() < share).all(), name
        assert ((getattr(expected, name)[first] / exact - 1).abs() < share).all(), name


def test_moments_are_the_same_alone_and_from_the_same_seed(task):
    stack, rows, _ = task
    together = stacked_moments(stack, rows, M, seed=3)
    for i in range(2):
        member = torch.tensor([i])
        alone = stacked_moments(stack.take(member), rows.take(member), M, seed=3)
        for name in PARTS:
            found, expected = getattr(gaussians(together, i), name), getattr(gaussians(alone, 0), name)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert not torch.equal(stacked_moments(stack, rows, M, seed=5).mean_std, together.mean_std)


def test_units_without_spread_have_moments(task):
    stack, rows, _ = task
    dead = stack.take(torch.arange(2))
    dead.weights["0.weight"][0, 0] = 0
    found = gaussians(stacked_moments(dead, rows, M), 0)
    for name in PARTS:
        values = getattr(found, name)
        assert torch.isfinite(values).all()
        assert name == "mean_loc" or (values > 0).all()
    assert found.std_loc[0] == pytest.approx(1e-6)


@pytest.mark.parametrize("center", ["running", "batch"])
def test_the_factorised_gaussian_is_that_of_each_network(task, center):
    """From the same moments, whatever the batches that they came from: those of a network alone, as it fits them."""
    stack, rows, own = task
    method = bn.GaussianBN(M, center=center)
    moments = stacked_moments(stack, rows, M)
    sampler = batchnorm_sampler(method, moments, in_target_units(stack, rows))
    sampler = sampler.at_batch_size(torch.tensor([4.0, 50.0]))
    f = sampler.outputs(rows, 9, seed=3)
    for i, size in enumerate((4.0, 50.0)):
        alone = method.fit(stack.network(i), own[i]).at_batch_size(size)
        q, width = gaussians(moments, i), 2 * WIDTH
        # The unit's deviations that the paper's appendix gives, in the posterior's coordinates: d log(s^2) = 2 ds / s.
        std = sampler.posterior.fluctuations.independent_std[i]
        torch.testing.assert_close(std[:width], q.mean_var.sqrt(), rtol=1e-9, atol=0)
        torch.testing.assert_close(std[width:], 2 * q.std_var.sqrt() / q.std_loc, rtol=1e-4, atol=0)  # but for eps
        states = {name: value[:, i] for name, value in sampler.sample(9, seed=3).items()}
        expected = alone.executable.run(states, own[i]) * rows.scales.y_std[i] + rows.scales.y_mean[i]
        torch.testing.assert_close(f[:, i, : len(own[i])], expected)


def test_the_factorised_gaussian_is_as_uncertain_as_that_of_each_network(task):
    """Moments come from random batches instead of one pass: the same in the mean over seeds."""
    stack, rows, own = task
    method, engine = bn.GaussianBN(M, center="batch"), bn.MonteCarlo(32)
    some, executable = first_rows(rows, 5), in_target_units(stack, rows)
    stacked = []
    for seed in range(SEEDS):
        sampler = batchnorm_sampler(method, stacked_moments(stack, rows, M, seed=seed), executable)
        stacked.append(torch.stack(sampler.moments(some, 32, seed=7)))  # the same normal numbers for all
    for i in range(2):
        y_mean, y_std = rows.scales.y_mean[i], rows.scales.y_std[i]
        alone = [engine.moments(method.fit(stack.network(i), own[i], seed=s), own[i][:5], seed=7) for s in range(SEEDS)]
        expected = torch.stack([torch.stack([mean * y_std + y_mean, var * y_std**2]) for mean, var in alone])
        assert far(torch.stack(stacked)[:, :, i].flatten(1), expected.flatten(1)) < FAR
