"""Kernels for the papers' networks: that they do what plain operations do."""

import importlib.util
from types import SimpleNamespace

import pytest
import torch

import bayesnorm as bn
from bayesnorm.posterior import coordinates
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.stacked_networks import (
    batch_statistics,
    choose_block,
    fit_stacked,
    posteriors,
    standardised_rows,
    unit_moments,
)
from experiments.stacked_networks.fused import fused_passes
from experiments.stacked_networks.fused.fused_block import FusedBlock

DEVICE = "cuda"
KERNELS = pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("triton") is None, reason="needs a GPU and Triton"
)

WIDTH, INPUTS = 20, 5
FLIPPED = 0.01
"""What one gradient of some thousand that a ReLU passes on or not may change; training changes weights by far more."""

SEEDS, DECAYS = [1, 2, 1, 3], [1e-1, 1e-3, 0.0, 1e-3]
CLOSE = 5e-5
"""Of single precision after 5 epochs, which Adam's roots make some hundred times worse than rounding a number is."""


class Counted:
    """Calls that were answered with something else than None."""

    def __init__(self, monkeypatch, place, name):
        self.count, original = 0, getattr(place, name)

        def call(*arguments):
            result = original(*arguments)
            self.count += result is not None
            return result

        monkeypatch.setattr(place, name, call)


@pytest.fixture
def used(monkeypatch):
    """How often kernels trained, took statistics and took moments: a plain path would pass all tests here too."""
    return SimpleNamespace(
        train=Counted(monkeypatch, FusedBlock, "train"),
        statistics=Counted(monkeypatch, unit_moments, "fused_statistics"),
        moments=Counted(monkeypatch, posteriors, "fused_moments"),
    )


def task(family, batch_size, dtype, rate=0.0):
    """Four networks; two share a seed but no rows, one has fewer steps in an epoch."""
    generator = torch.Generator().manual_seed(0)
    n = 2 * batch_size + 17
    x = (3 * torch.randn(n, INPUTS, generator=generator) + 1).to(dtype)
    y = 4 * torch.sin(x[:, :1]) + 2
    make = {
        "batch norm": lambda i: paper_mlp(INPUTS, hidden=(WIDTH, WIDTH), seed=i),
        "dropout": lambda i: paper_dropout_mlp(INPUTS, rate, hidden=(WIDTH, WIDTH), seed=i),
    }[family]
    counts = n, n - 3, n, batch_size + 5
    picked = [torch.randperm(n, generator=generator)[:count] for count in counts]
    stack = Stack.from_networks([make(i).to(dtype) for i in range(4)])
    return stack, standardised_rows(x, y, picked)


def trained(family, batch_size, dtype, *, rate=0.0, device="cpu", **options):
    stack, rows = task(family, batch_size, dtype, rate)
    stack = stack.to(device)
    options = {"epochs": 5, "weight_decay": DECAYS, "seeds": SEEDS, "learning_rate": 3e-3, **options}
    return stack, rows, train(stack, rows, batch_size=batch_size, **options)


def train(stack, rows, **options):
    """Train by kernels where they support the networks."""
    loss = HalfSquaredError()
    options = {"seeds": [0] * len(stack), "choose_block": choose_block, **options}
    return train_stacked(stack, rows, loss=loss, **options)


def new_rows(x, rows):
    """Rows that every network predicts, in the units of its training rows."""
    return standardised_rows(x, torch.zeros(len(x), 1), [torch.arange(len(x))] * len(rows.lengths), rows.scales)


def far(result, expected):
    """The largest difference of each network's tensors, relative to their size."""
    differences = [
        (result[name].cpu().double() - value).flatten(1).norm(dim=1) / value.flatten(1).norm(dim=1).clamp_min(1e-8)
        for name, value in expected.tensors.items()
    ]
    return torch.stack(differences).amax(0)


def same(result, expected):
    """Whether all networks agree, but for at most one in which a ReLU got a number that rounding moved across 0."""
    differences = far(result, expected).sort().values
    return bool(differences[-2] < CLOSE and differences[-1] < FLIPPED)


CASES = [("batch norm", 32), ("batch norm", 64), ("batch norm", 256), ("batch norm", 48), ("dropout", 32)]


@KERNELS
@pytest.mark.parametrize(("family", "batch_size"), CASES)
def test_training_is_that_of_plain_operations(used, family, batch_size):
    expected, _, told = trained(family, batch_size, torch.float64)
    stack, _, history = trained(family, batch_size, torch.float32, device=DEVICE)
    assert used.train.count == 2, "networks with as many steps together"
    assert same(stack.weights, expected.weights)
    if family == "batch norm":
        assert same(stack.buffers, expected.buffers)
    assert stack.tracked.tolist() == expected.tracked.tolist()
    torch.testing.assert_close(history.losses, told.losses, rtol=FLIPPED, atol=0)
    start, _ = task(family, batch_size, torch.float64)
    assert far(start.weights, expected.weights).min() > 10 * FLIPPED, "they have moved"


@KERNELS
@pytest.mark.parametrize("batch_size", [32, 64, 48])
def test_statistics_are_those_of_plain_operations(used, batch_size):
    expected, rows, _ = trained("batch norm", batch_size, torch.float64)
    stack = single(expected).to(DEVICE)
    by_kernel = in_coordinates(batch_statistics(stack, rows, batch_size, 7, seed=1))
    assert used.statistics.count == 1
    exact = in_coordinates(batch_statistics(expected, rows, batch_size, 7, seed=1))
    off = (by_kernel.cpu() - exact).abs() / exact.std(0, keepdim=True)
    assert off.max() < 20 * CLOSE, "of what batches differ by, which is some per cent of a variance"


@KERNELS
@pytest.mark.parametrize("rows", [37, 64, 130])
@pytest.mark.parametrize("at_once", [fused_passes.DRAWN, 1], ids=["together", "one by one"])
@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_moments_are_those_of_plain_operations(used, monkeypatch, family, at_once, rows):
    monkeypatch.setattr(fused_passes, "DRAWN", at_once)
    expected, training_rows, _ = trained(family, 32, torch.float64, rate=0.2)
    stack = single(expected).to(DEVICE)
    x = new_rows(torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(1)).double(), training_rows)
    method = bn.MCBN(32, states=9, center="batch") if family == "batch norm" else bn.MCDropout()
    exact, by_kernel = (fit_stacked(method, networks, training_rows, seed=1) for networks in (expected, stack))
    if family == "batch norm":
        sizes = torch.tensor([16.0, 32.0, 64.0, 8.0])
        exact, by_kernel = exact.at_batch_size(sizes), by_kernel.at_batch_size(sizes)
    mean, var = by_kernel.moments(x, 9, seed=1)
    exact_mean, exact_var = exact.moments(x, 9, seed=1)
    size = exact_mean.std()
    assert mean.shape == var.shape == (4, rows, 1)
    assert ((mean.cpu() - exact_mean).abs() / size).max() < CLOSE
    assert ((var.cpu() - exact_var).abs() / (exact_var + CLOSE * size**2)).max() < 10 * CLOSE
    assert used.moments.count == 1


def in_coordinates(statistics):
    """Means and logarithms of variances, (S, E, 2C)."""
    return coordinates(statistics.mean, statistics.var, statistics.layers)


def single(stack):
    """The same networks in single precision."""
    return Stack.from_networks([stack.network(i).float() for i in range(len(stack))])
