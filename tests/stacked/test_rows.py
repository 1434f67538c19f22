"""Rows of a stack: which are whose, in whose units, and which are none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bayesnorm.errors import InputError
from bayesnorm.likelihoods import Gaussian
from bayesnorm.metrics import rmse
from bayesnorm.stacked import Scales, Stack, StackedRows, stacked_outputs, stacked_point
from bayesnorm.training import Rescaled

from .stacked_networks import INPUTS, X, Y, batchnorm, data, furthest, task, together


def test_rows_of_a_network_of_its_own():
    """Tables of each network, or rows of a common one: the same."""
    networks, rows, _ = task(counts=(90, 90))
    own_x = torch.stack([rows.x[rows.table[i]] for i in range(2)])
    own_y = torch.stack([rows.y[rows.table[i]] for i in range(2)])
    other = StackedRows.of(own_x, own_y[..., 0], standardise=True)
    torch.testing.assert_close(other.inputs(), rows.inputs())
    torch.testing.assert_close(other.targets(), rows.targets())
    found, expected = (together(networks, each, epochs=3)[0] for each in (other, rows))
    assert furthest(found.network(1), expected.network(1)) < 1e-5


def test_targets_that_are_a_column_of_a_table():
    """Kernels read targets one after the other in memory."""
    table = torch.cat([X, Y], 1)
    for y in (table[:, -1], table[:, -1:], table.long()[:, -1]):
        assert not y.is_contiguous()
        rows = StackedRows.of(table[:, :-1], y, networks=2)
        assert rows.x.is_contiguous()
        assert rows.y.is_contiguous()
        assert torch.equal(rows.y.flatten(), y.flatten())


def test_units():
    x, y = data()
    x[:, 2] = 0.1
    rows = StackedRows.of(x, y, [range(60), range(20, 100)], standardise=True)
    for i, part in enumerate([slice(0, 60), slice(20, 100)]):
        scaled = Rescaled.from_data(nn.Identity(), x[part], y[part])
        scaled.x_std[2] = 1.0
        expected = scaled.standardise(x[part], y[part])
        n = int(rows.lengths[i])
        torch.testing.assert_close(rows.inputs()[i, :n], expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows.targets()[i, :n], expected[1], rtol=1e-4, atol=1e-5)
        assert torch.equal(rows.own_targets[i, :n], y[part])
        assert rows.own_targets[i, n:].isnan().all(), "what fills up a shorter list is no target"
    assert rows.mask.sum(1).tolist() == [60, 80]
    assert rows.mean(rows.mask.float()).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("standardise", [True, False])
def test_outputs_come_back_in_the_units_of_the_targets(standardise):
    """Networks that return their input, asked about rows whose inputs are their targets."""
    _, y = data()
    networks = [nn.Sequential(nn.Linear(1, 1)) for _ in range(2)]
    for network in networks:
        nn.init.ones_(network[0].weight)
        nn.init.zeros_(network[0].bias)
    rows = StackedRows.of(y, y, [range(60), range(20, 100)], standardise=standardise)
    posterior = stacked_point(Stack.of(networks), rows, Gaussian(missing=True))
    f = posterior.executable.point(rows)
    torch.testing.assert_close(f[0, :60], y[:60], check_dtype=False)
    torch.testing.assert_close(f[1], y[20:], check_dtype=False)
    off = rows.own_targets + torch.tensor([2.0, 3.0])[:, None, None]
    torch.testing.assert_close(rmse(posterior.predict(rows), off, each=1), torch.tensor([2.0, 3.0]), check_dtype=False)


def test_thinned_rows_are_the_first():
    x, y = data()
    rows = StackedRows.of(x, y, [range(96), range(20, 100)], standardise=True)
    some = rows.thinned(90)
    assert some.lengths.tolist() == [90, 80]
    assert some.mask.sum(1).tolist() == [90, 80]
    for i, (start, n) in enumerate([(0, 90), (20, 80)]):
        assert torch.equal(some.inputs()[i, :n], rows.inputs()[i, :n]), "in the units of all rows"
        assert torch.equal(some.own_targets[i, :n], y[start : start + n])
    assert rows.thinned(500).lengths.tolist() == [96, 80]
    stack = Stack.of([batchnorm(0.0, seed) for seed in range(2)])
    assert stacked_outputs(stack, some).shape == (2, 90, 1)


BAD_ROWS = {
    "out of range": (
        {"rows": [[0, 1], [3, 40]]},
        r"rows\[1\] has numbers from 3 to 40, but x has 40 rows. Use 0 to 39",
    ),
    "negative": ({"rows": [[0, -1]]}, r"rows\[0\] has numbers from -1 to 0"),
    "no numbers": ({"rows": [[0.5, 1.0]]}, r"rows\[0\] must be .*, got shape \(2,\) and torch.float64"),
    "none": ({"rows": [[]]}, r"rows\[0\] has shape .*at least one example"),
    "how many": ({}, "networks: the number of networks is unknown"),
    "lengths": ({"rows": [[0, 1]], "networks": 2}, r"networks for 2, rows for 1\). These numbers must be equal"),
    "y": ({"y": Y[:-1], "networks": 1}, r"y has shape \(39, 1\), but x has shape \(40, 4\)"),
    "no table": ({"x": X[:, 0], "networks": 1}, r"x has shape \(40,\). Pass \(rows, inputs\)"),
    "scales of others": (
        {"networks": 2, "standardise": Scales(*(torch.ones(3, 1) for _ in range(4)))},
        "standardise: the scales are for 3 networks, but there are 2",
    ),
    "scales of other inputs": (
        {"networks": 1, "standardise": Scales(*(torch.ones(1, n) for n in (3, 3, 1, 1)))},
        "standardise: the scales have 3 inputs, but x has 4",
    ),
    "fewer than no networks": ({"networks": -1}, "networks must be .*a whole number of at least 1.*, got -1"),
    "half a network": ({"networks": 2.5}, "networks must be .*, got 2.5"),
    "no lists": ({"rows": 5}, "rows must be .*a list of row numbers for each network.*, got int"),
    "not finite": ({"x": X * math.nan, "networks": 1}, "x has 160 NaN"),
}


def test_rows_without_real_targets_have_none_of_their_own():
    for y in (None, torch.zeros(40, dtype=torch.long)):
        with pytest.raises(InputError, match="y: these rows have no real targets"):
            StackedRows.of(X, y, networks=1).own_targets  # noqa: B018


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_are_none(case):
    options, message = BAD_ROWS[case]
    with pytest.raises(InputError, match=message):
        StackedRows.of(**{"x": X, "y": Y, **options})


def test_scales_of_other_rows():
    scales = Scales(torch.zeros(1, INPUTS), torch.full((1, INPUTS), 2.0), torch.ones(1, 1), torch.full((1, 1), 4.0))
    rows = StackedRows.of(X, Y, networks=1, standardise=scales)
    torch.testing.assert_close(rows.inputs()[0], X / 2)
    torch.testing.assert_close(rows.targets()[0], (Y - 1) / 4)
