"""Kernels for the papers' networks: that they do what plain operations do."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import BayesNormWarning
from bayesnorm.posterior import coordinates
from bayesnorm.tabular.stacked import Block, HalfSquaredError, Scales, Stack, train_stacked
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.stacked_networks import (
    batch_statistics,
    choose_block,
    fit_stacked,
    posteriors,
    standardised_rows,
    unit_moments,
)
from experiments.stacked_networks.fused import fused_block, fused_passes
from experiments.stacked_networks.fused.fused_block import FusedBlock
from experiments.stacked_networks.fused.shape import shape_of

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
            found = original(*arguments)
            self.count += found is not None
            return found

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


def plain_block(*_arguments):
    """Train by plain operations."""
    return Block


def new_rows(x, rows):
    """Rows that every network predicts, in the units of its training rows."""
    return standardised_rows(x, torch.zeros(len(x), 1), [torch.arange(len(x))] * len(rows.lengths), rows.scales)


def far(found, expected):
    """The largest difference of each network's tensors, relative to their size."""
    differences = [
        (found[name].cpu().double() - value).flatten(1).norm(dim=1) / value.flatten(1).norm(dim=1).clamp_min(1e-8)
        for name, value in expected.tensors.items()
    ]
    return torch.stack(differences).amax(0)


def same(found, expected):
    """Whether all networks agree, but for at most one in which a ReLU got a number that rounding moved across 0."""
    differences = far(found, expected).sort().values
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
@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_training_goes_on_where_it_was(used, family):
    """Scores between epochs, and networks that leave: moments, orders and steps of the others go on."""

    def worse_or_better(counted):
        def evaluate(_stack, members):
            counted.append(members.tolist())
            return torch.where(members < 2, 1.0, -1.0) * len(counted)

        return evaluate

    options = {"epochs": 6, "evaluate_every": 1, "patience": 1}
    results = [
        trained(family, 32, dtype, device=device, evaluate=worse_or_better([]), **options)
        for dtype, device in ((torch.float64, "cpu"), (torch.float32, DEVICE))
    ]
    (expected, _, told), (stack, _, history) = results
    assert used.train.count > 3
    assert history.stopped.tolist() == told.stopped.tolist() == [2, 2, 6, 6]
    assert history.epochs.tolist() == told.epochs.tolist() == [1, 1, 6, 6]
    assert same(stack.weights, expected.weights)


@KERNELS
@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_each_network_stops_at_its_own_epoch(used, family):
    """Launches end at the next limit, and networks that are over stay as they were."""
    limits = [5, 2, 4, 4]
    expected, _, _ = trained(family, 32, torch.float64, epochs=limits)
    stack, _, history = trained(family, 32, torch.float32, device=DEVICE, epochs=limits)
    assert used.train.count == 2 + 2 + 1, "all until epoch 2, three until 4, one until 5"
    assert history.stopped.tolist() == history.epochs.tolist() == limits
    assert torch.isfinite(history.losses).sum(1).tolist() == limits
    assert same(stack.weights, expected.weights)
    assert stack.tracked.tolist() == expected.tracked.tolist()


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


@KERNELS
@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_epochs_in_several_launches_change_nothing(monkeypatch, used, family):
    expected, _, told = trained(family, 32, torch.float32, rate=0.2, device=DEVICE)
    launches = Counted(monkeypatch, FusedBlock, "_launch")
    monkeypatch.setattr(fused_block, "ORDERED", 2 * 2 * 64)  # two epochs of two orders
    stack, _, history = trained(family, 32, torch.float32, rate=0.2, device=DEVICE)
    assert used.train.count == 4
    assert launches.count == 3 + 1, "of networks with two steps in an epoch, and with one"
    assert torch.equal(stack.weights.flat, expected.weights.flat)
    assert torch.equal(history.losses, told.losses)


@KERNELS
def test_targets_may_be_a_column_of_a_table_on_the_device(used):
    stack, rows = task("batch norm", 32, torch.float32)
    table = torch.cat([rows.x, rows.y], 1).to(DEVICE)
    lists = [rows.table[i, :n] for i, n in enumerate(rows.lengths)]
    from_table, from_parts = stack.to(DEVICE), stack.to(DEVICE)
    for networks, own in (
        (from_table, standardised_rows(table[:, :-1], table[:, -1], lists, rows.scales)),
        (from_parts, standardised_rows(rows.x, rows.y, lists, rows.scales)),
    ):
        train(networks, own, epochs=2, batch_size=32)
    assert used.train.count == 4
    assert torch.equal(from_table.weights.flat, from_parts.weights.flat)


@KERNELS
def test_more_programs_than_a_launch_has_on_its_second_axis(used, monkeypatch):
    expected, rows, _ = trained("batch norm", 32, torch.float32)
    stack = expected.to(DEVICE)
    x = new_rows(torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(1)), rows)
    sampler = fit_stacked(bn.MCBN(32, states=7), stack, rows, seed=1)
    statistics = in_coordinates(batch_statistics(stack, rows, 32, 7, seed=1))
    assert used.statistics.count == 2
    mean, var = sampler.moments(x, 7)
    monkeypatch.setattr(fused_passes, "PROGRAMS", 3)
    torch.testing.assert_close(
        in_coordinates(batch_statistics(stack, rows, 32, 7, seed=1)), statistics, rtol=1e-4, atol=1e-4
    )
    assert used.statistics.count == 2, "the last were left to plain operations"
    parts = sampler.moments(x, 7)
    assert used.moments.count == 2
    assert torch.equal(parts[0], mean)
    assert torch.equal(parts[1], var)


@KERNELS
def test_the_same_seed_drops_the_same(used):
    """Whatever other networks are beside it, and however many epochs are trained in one call."""
    first, _, told = trained("dropout", 32, torch.float32, rate=0.2, device=DEVICE)
    again, _, _ = trained("dropout", 32, torch.float32, rate=0.2, device=DEVICE)
    parts, _, _ = trained(
        "dropout",
        32,
        torch.float32,
        rate=0.2,
        device=DEVICE,
        evaluate=lambda _s, m: -torch.ones(len(m)),
        evaluate_every=1,
    )
    assert used.train.count == 2 + 2 + 10
    assert torch.equal(first.weights.flat, again.weights.flat)
    assert torch.equal(first.weights.flat, parts.weights.flat)
    stack, rows = task("dropout", 32, torch.float32, 0.2)
    member = torch.tensor([2])
    alone = stack.take(member).to(DEVICE)
    options = {"weight_decay": [DECAYS[2]], "seeds": [SEEDS[2]], "learning_rate": 3e-3}
    train(alone, rows.take(member), epochs=5, batch_size=32, **options)
    assert torch.equal(alone.weights.flat, first.take(member).weights.flat)
    other, _, _ = trained("dropout", 32, torch.float32, rate=0.2, device=DEVICE, seeds=[4, 5, 6, 7])
    without, _, _ = trained("dropout", 32, torch.float32, device=DEVICE)
    assert not torch.equal(first.weights.flat, other.weights.flat)
    assert not torch.equal(first.weights.flat, without.weights.flat)
    assert torch.isfinite(told.losses).all()


UNITS, EPOCHS, STEPS = 16, 25, 4


@KERNELS
@pytest.mark.parametrize("rate", [0.05, 0.3])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["inputs", "first layer", "second layer"])
def test_as_many_units_are_kept_as_there_should_be(used, place, rate):
    """Networks whose output is the mean of one dropout layer's factors, and whose weights hardly move.

    With targets 0 and 1 and the same seed, losses tell the mean m and the mean square of the outputs:
    2 loss_0 = E f^2, and 2 loss_1 = E f^2 - 2 m + 1.
    """
    networks = []
    for _ in range(2):
        network = paper_dropout_mlp(UNITS, 0.0, hidden=(UNITS, UNITS))
        [layer for layer in network if isinstance(layer, nn.Dropout)][place].p = rate
        first, second, last = (layer for layer in network if isinstance(layer, nn.Linear))
        with torch.no_grad():
            first.weight.copy_(torch.eye(UNITS))
            second.weight.copy_(torch.eye(UNITS))
            last.weight.fill_(1 / UNITS)
        networks.append(network)
    rows = 32 * STEPS
    x, y = torch.ones(2 * rows, UNITS), torch.cat([torch.zeros(rows, 1), torch.ones(rows, 1)])
    units = Scales(torch.zeros(2, UNITS), torch.ones(2, UNITS), torch.zeros(2, 1), torch.ones(2, 1))
    lists = list(torch.arange(2 * rows).chunk(2))
    stack = Stack.from_networks(networks).to(DEVICE)
    history = train(
        stack, standardised_rows(x, y, lists, units), epochs=EPOCHS, batch_size=32, learning_rate=1e-20, seeds=[5, 5]
    )
    assert used.train.count == 1
    square, distance = (2 * history.losses).double()
    mean = ((square - distance + 1) / 2).mean()
    outputs, var = EPOCHS * rows, rate / (1 - rate) / UNITS  # of them, and of one: a mean of independent factors
    assert abs(mean - 1) < 5 * (var / outputs) ** 0.5, "the share that is kept, over the share that should be"
    # E f^2 = 1 + var, and f^2 has about the variance 4 var of a number near 1.
    assert abs(square.mean() - 1 - var) < 5 * (4.5 * var / outputs) ** 0.5, "units of a row are independent"
    spread = (4 * var / rows) ** 0.5
    assert 0.5 * spread < square.std() < 1.6 * spread, "and so are rows, steps and epochs"


@KERNELS
def test_wide_layers_are_for_quick_products_only():
    stack = Stack.from_networks([paper_mlp(INPUTS, hidden=(100, 100))]).to(DEVICE)
    assert torch.get_float32_matmul_precision() == "highest"
    assert shape_of(stack) is None
    try:
        torch.set_float32_matmul_precision("high")
        assert shape_of(stack).H == 128
        x = torch.randn(100, INPUTS, generator=torch.Generator().manual_seed(0))
        rows = standardised_rows(x, x.sin().sum(1), [torch.arange(100)])
        history = train(stack, rows, epochs=5, batch_size=32)
    finally:
        torch.set_float32_matmul_precision("highest")
    plain = train(Stack.from_networks([paper_mlp(INPUTS, hidden=(100, 100))]), rows, epochs=5, batch_size=32)
    # Factors rounded to 10 binary digits, of which products and Adam's first steps make some per cent at most.
    torch.testing.assert_close(history.losses, plain.losses, rtol=0.05, atol=0)


@KERNELS
def test_networks_that_do_not_fit_train_all_the_same(monkeypatch):
    from experiments.stacked_networks.fused import kernels

    class TooLarge:
        def __getitem__(self, grid):
            raise kernels.OutOfResources(262_400, 232_448, "shared memory")

    for name in ("train_batchnorm", "statistics", "moments"):
        monkeypatch.setattr(kernels, name, TooLarge())
    with pytest.warns(BayesNormWarning, match="do not fit on a multiprocessor .* 262400"):
        stack, rows, history = trained("batch norm", 32, torch.float32, device=DEVICE)
    expected, _, told = trained("batch norm", 32, torch.float32, device=DEVICE, choose_block=plain_block)
    torch.testing.assert_close(history.losses, told.losses, rtol=FLIPPED, atol=0)
    assert same(single(stack).weights, single(expected.to("cpu")).weights)
    sampler = fit_stacked(bn.MCBN(32, states=7), stack, rows, seed=1)
    mean, var = sampler.moments(rows, 7)
    f = sampler.outputs(rows, 7)
    torch.testing.assert_close(mean, f.mean(0))
    torch.testing.assert_close(var, f.var(0, correction=0), rtol=1e-3, atol=1e-6)


@KERNELS
@pytest.mark.filterwarnings("ignore:The networks do not fit on a multiprocessor")
def test_the_largest_networks():
    """Which need more memory than the multiprocessors of some GPUs have."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 100, generator=generator)
    rows = standardised_rows(x, x.sin().sum(1), [torch.arange(200)] * 2)
    networks = [paper_mlp(100, hidden=(100, 100), seed=i) for i in range(2)]
    plain = train(Stack.from_networks(networks), rows, epochs=5, batch_size=64)
    try:
        torch.set_float32_matmul_precision("high")
        stack = Stack.from_networks(networks).to(DEVICE)
        history = train(stack, rows, epochs=5, batch_size=64)
        mean, _ = fit_stacked(bn.MCBN(64, states=5), stack, rows).moments(rows, 5)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(history.losses, plain.losses, rtol=0.05, atol=0)
    assert torch.isfinite(mean).all()


def in_coordinates(statistics):
    """Means and logarithms of variances, (S, E, 2C)."""
    return coordinates(statistics.mean, statistics.var, statistics.layers)


def single(stack):
    """The same networks in single precision."""
    return Stack.from_networks([stack.network(i).float() for i in range(len(stack))])
