"""Stacks: every network comes back as it went in, and predicts as if it were alone."""

import pytest
import torch

from bayesnorm.tabular.stacked import Stack, passes, stacked_outputs
from experiments.stacked_networks import in_target_units

from .stacked_networks import COUNTS, FAMILIES, RATES, furthest, rows_of_network, task, together, trained


def test_there_and_back():
    networks, rows, _ = task("mixed")
    stack = Stack.from_networks(networks)
    assert all(furthest(stack.network(i), network) == 0 for i, network in enumerate(networks))
    assert [stack.network(i).get_submodule("4.0").p for i in range(5)] == RATES
    trained(stack, rows, epochs=2)
    for i in range(5):
        network = stack.network(i)
        assert int(network[0].num_batches_tracked) == 2 * (COUNTS[i] // 16)
        assert not network.training
    assert len(stack.take(torch.tensor([2, 0]))) == 2
    assert furthest(stack.take(torch.tensor([2, 0])).network(0), stack.network(2)) == 0


@pytest.mark.parametrize("piece", [passes.BLOCK_NUMBERS["cpu"], 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_the_networks_own(family, piece, monkeypatch):
    monkeypatch.setitem(passes.BLOCK_NUMBERS, "cpu", piece)
    networks, rows, held_out = task(family)
    stack, _ = together(networks, rows, epochs=2)
    point = in_target_units(stack, rows).point(held_out)
    joined = held_out.unpadded(point[None])[0].split(held_out.lengths.tolist())
    with torch.no_grad():
        for i in range(5):
            alone = stack.network(i)
            values, _ = rows_of_network(held_out, i)
            f = alone(values)
            torch.testing.assert_close(stacked_outputs(stack, held_out)[i, : len(values)], f)
            expected = f.double() * rows.scales.y_std[i] + rows.scales.y_mean[i]
            torch.testing.assert_close(point[i, : len(values)], expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(joined[i], expected, rtol=1e-5, atol=1e-5)
