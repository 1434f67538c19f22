"""Stacks: every network comes out, and predicts, as if it were alone."""

from __future__ import annotations

import pytest
import torch

import bayesnorm as bn
from bayesnorm.stacked import Stack, passes, train_stacked

from .stacked_networks import COUNTS, FAMILIES, INPUTS, RATES, SEEDS, data, furthest, own, task, together


def test_there_and_back():
    networks, rows, _ = task("mixed")
    stack = Stack.of(networks)
    assert all(furthest(stack.network(i), network) == 0 for i, network in enumerate(networks))
    assert [stack.network(i).get_submodule("4.0").p for i in range(5)] == RATES
    train_stacked(stack, rows, epochs=2, batch_size=16)
    stack.write_back(networks)
    for i, network in enumerate(networks):
        assert furthest(stack.network(i), network) == 0
        assert int(network[0].num_batches_tracked) == 2 * (COUNTS[i] // 16)
        assert not network.training
    assert len(stack.take(torch.tensor([2, 0]))) == 2
    assert furthest(stack.take(torch.tensor([2, 0])).network(0), networks[2]) == 0


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_the_networks_own(family, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, held_out = task(family)
    stack, _ = together(networks, rows, epochs=2)
    x = torch.randn(5, 9, INPUTS)
    with torch.no_grad():
        for i in range(5):
            alone = stack.network(i)
            torch.testing.assert_close(stack.predict(x[0])[i], alone(x[0]))
            torch.testing.assert_close(stack.predict(x)[i], alone(x[i]))
            values, targets = own(held_out, i)
            f = alone(values)
            torch.testing.assert_close(stack.predict(held_out)[i, : len(values)], f)
            error = (f - targets).square().mean().sqrt().double() * held_out.scales.y_std[i]
            torch.testing.assert_close(held_out.rmse(stack.predict(held_out))[i], error[0], check_dtype=False)


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 400])
@pytest.mark.parametrize("center", ["running", "batch"])
def test_draws_are_those_of_mcbn(center, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, _ = task(dtype=torch.float64)
    stack, _ = together(networks, rows, epochs=5)
    x = data(7, torch.float64, seed=5)[0] - 5
    effective = [16.0, 40.0, 16.0, 100.0, 16.0]
    statistics = stack.batch_statistics(rows, 16, 24, seed=SEEDS).about(center).at_batch_size(effective)
    f = stack.predict_under(statistics, x)
    mean, var = stack.moments_under(statistics, x)
    assert f.shape == (24, 5, 7, 1)
    for i in range(5):
        method = bn.MCBN(16, states=24, center=center)
        posterior = method.fit(stack.network(i), own(rows, i)[0], seed=SEEDS[i]).at_batch_size(effective[i])
        expected = bn.MonteCarlo(24).outputs(posterior, x, seed=1)
        order = torch.randperm(24, generator=torch.Generator().manual_seed(1))  # a posterior draws batches in an order
        torch.testing.assert_close(f[order, i], expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(mean[i], expected.mean(0), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(var[i], expected.var(0, correction=0), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 100])
@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("family", ["dropout", "mixed"])
def test_masks_are_those_of_mc_dropout(family, consistent, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, _ = task(family)
    stack, _ = together(networks, rows, epochs=2)
    x = torch.randn(21, INPUTS)
    masks = stack.dropout_masks(10, seed=SEEDS, consistent=consistent)
    f = stack.predict_under(masks, x)
    mean, _ = stack.moments_under(masks, x)
    for i in (0, 1, 3, 4):
        posterior = bn.MCDropout(consistent=consistent).fit(stack.network(i), likelihood=bn.Gaussian())
        expected = bn.MonteCarlo(10).outputs(posterior, x, seed=SEEDS[i])
        torch.testing.assert_close(f[:, i], expected)
        torch.testing.assert_close(mean[i], expected.mean(0))
    assert f[:, 2].std(0).max() < 1e-5, "its rate is 0"
