"""Rows of a stack: which are whose, and in whose units."""

import torch
from torch import nn

from bayesnorm.training import Rescaled
from experiments.stacked_networks import first_rows, own_targets, standardised_rows

from .stacked_networks import data


def test_targets_that_are_a_column_of_a_table():
    """Kernels read targets one after the other in memory."""
    x, y = data(40)
    table = torch.cat([x, y], 1)
    rows = standardised_rows(table[:, :-1], table[:, -1], [torch.arange(40)] * 2)
    assert rows.x.is_contiguous()
    assert rows.y.is_contiguous()
    assert torch.equal(rows.y, y)


def test_units():
    x, y = data()
    x[:, 2] = 0.1
    rows = standardised_rows(x, y, [torch.arange(60), torch.arange(20, 100)])
    for i, part in enumerate([slice(0, 60), slice(20, 100)]):
        scaled = Rescaled.from_data(nn.Identity(), x[part], y[part])
        scaled.x_std[2] = 1.0
        expected = scaled.standardise(x[part], y[part])
        n = int(rows.lengths[i])
        torch.testing.assert_close(rows.inputs()[i, :n], expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows.targets()[i, :n], expected[1], rtol=1e-4, atol=1e-5)
        assert torch.equal(own_targets(rows)[i, :n], y[part])
        assert own_targets(rows)[i, n:].isnan().all(), "what fills up a shorter list is no target"
    assert rows.mask.sum(1).tolist() == [60, 80]
    assert rows.mean(rows.mask.float()).tolist() == [1.0, 1.0]


def test_thinned_rows_are_the_first():
    x, y = data()
    rows = standardised_rows(x, y, [torch.arange(60), torch.arange(20, 100)])
    some = first_rows(rows, 70)
    assert some.lengths.tolist() == [60, 70]
    assert torch.equal(some.inputs()[1], rows.inputs()[1, :70])
