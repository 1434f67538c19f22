"""Stacks: every network comes back as it went in, and predicts as if it were alone."""

from __future__ import annotations

import pytest
import torch

import bayesnorm as bn
from bayesnorm.metrics import rmse
from bayesnorm.stacked import Stack, passes, stacked_outputs, stacked_point, train_stacked

from .stacked_networks import COUNTS, FAMILIES, INPUTS, RATES, furthest, own, task, together


def test_there_and_back():
    networks, rows, _ = task("mixed")
    stack = Stack.of(networks)
    assert all(furthest(stack.network(i), network) == 0 for i, network in enumerate(networks))
    assert [stack.network(i).get_submodule("4.0").p for i in range(5)] == RATES
    train_stacked(stack, rows, epochs=2, batch_size=16)
    for i in range(5):
        network = stack.network(i)
        assert int(network[0].num_batches_tracked) == 2 * (COUNTS[i] // 16)
        assert not network.training
    assert len(stack.take(torch.tensor([2, 0]))) == 2
    assert furthest(stack.take(torch.tensor([2, 0])).network(0), stack.network(2)) == 0


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_the_networks_own(family, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, held_out = task(family)
    stack, _ = together(networks, rows, epochs=2)
    x = torch.randn(5, 9, INPUTS)
    point = stacked_point(stack, rows, bn.Gaussian(missing=True))
    errors = rmse(point.predict(held_out), held_out.own_targets, each=1)
    with torch.no_grad():
        for i in range(5):
            alone = stack.network(i)
            torch.testing.assert_close(stacked_outputs(stack, x[0])[i], alone(x[0]))
            torch.testing.assert_close(stacked_outputs(stack, x)[i], alone(x[i]))
            values, targets = own(held_out, i)
            f = alone(values)
            torch.testing.assert_close(stacked_outputs(stack, held_out)[i, : len(values)], f)
            error = (f - targets).square().mean().sqrt().double() * held_out.scales.y_std[i]
            torch.testing.assert_close(errors[i], error[0], check_dtype=False)
