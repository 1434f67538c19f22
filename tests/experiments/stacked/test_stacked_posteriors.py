"""Samplers over a stack: every network is as uncertain as if the method had been fitted on it alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bayesnorm as bn
from bayesnorm.posterior import Empirical, coordinates
from bayesnorm.tabular.stacked import StackedExecutable, passes, stacked_statistics
from experiments.stacked_networks import (
    batch_statistics,
    batchnorm_sampler,
    fit_stacked,
    in_target_units,
    output_moments,
)

from ...tabular.stacked.stacked_networks import SEEDS, in_target_units as raw_outputs, own, task, together

STATES, SAMPLES, SEED = 24, 30, 3
SIZES = [16.0, 40.0, 2.5, 100.0, 16.0]

METHODS = {
    "MCBN": bn.MCBN(16, STATES),
    "MCBN, batch": bn.MCBN(16, STATES, center="batch"),
    "GaussianBN rank 6": bn.GaussianBN(16, STATES, rank=6),
    "GaussianBN rank 6, batch": bn.GaussianBN(16, STATES, rank=6, center="batch"),
    "StochasticBN": bn.StochasticBN(16, STATES),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(scope="module")
def trained():
    """Stacks of every family, with their rows and rows that they were not trained on, in double precision."""
    found = {}
    for family in ("batch norm", "dropout", "mixed"):
        networks, rows, held_out = task(family, torch.float64)
        found[family] = together(networks, rows, epochs=3)[0], rows, held_out
    return found


@pytest.mark.parametrize(
    ("name", "numbers"), [*((name, passes.BLOCK_NUMBERS["cpu"]) for name in METHODS), ("MCBN", 400)]
)
def test_samples_are_those_of_the_method(trained, name, numbers, monkeypatch):
    monkeypatch.setitem(passes.BLOCK_NUMBERS, "cpu", numbers)
    stack, rows, held_out = trained["batch norm"]
    method, engine = METHODS[name], bn.MonteCarlo(SAMPLES)
    sampler = fit_stacked(method, stack, rows, seed=SEED)
    assert sampler.batch_size.tolist() == [16.0] * 5
    sampler = sampler.at_batch_size(torch.tensor(SIZES))
    f = sampler.outputs(held_out, SAMPLES, seed=1)
    mean, var = sampler.moments(held_out, SAMPLES, seed=1)
    assert f.shape == (SAMPLES, 5, held_out.table.shape[1], 1)
    assert f.dtype == torch.float64
    for i in range(5):
        x = own(held_out, i)[0]
        alone = method.fit(stack.network(i), own(rows, i)[0], seed=SEED).at_batch_size(SIZES[i])
        expected = raw_outputs(engine.outputs(alone, x, seed=1), rows, i)
        torch.testing.assert_close(f[:, i, : len(x)], expected, **CLOSE)
        torch.testing.assert_close(mean[i, : len(x)], expected.mean(0), **CLOSE)
        torch.testing.assert_close(var[i, : len(x)], expected.var(0, correction=0), **CLOSE)
    assert var.min() > 1e-6, "there is something to compare"


@pytest.mark.parametrize("numbers", [passes.BLOCK_NUMBERS["cpu"], 100])
@pytest.mark.parametrize("family", ["dropout", "mixed"])
def test_masks_are_those_of_mc_dropout(trained, family, numbers, monkeypatch):
    monkeypatch.setitem(passes.BLOCK_NUMBERS, "cpu", numbers)
    stack, rows, held_out = trained[family]
    same = torch.tensor([0, 3])  # networks with the same rate
    stack, rows, held_out = stack.take(same), rows.take(same), held_out.take(same)
    sampler, engine = fit_stacked(bn.MCDropout(), stack, rows), bn.MonteCarlo(6)
    f = sampler.outputs(held_out, 6, seed=3)
    mean, var = sampler.moments(held_out, 6, seed=3)
    for i in range(2):
        x = own(held_out, i)[0]
        alone = bn.MCDropout().fit(stack.network(i), likelihood=bn.Gaussian())
        expected = raw_outputs(engine.outputs(alone, x, seed=3), rows, i)
        torch.testing.assert_close(f[:, i, : len(x)], expected, **CLOSE)
        torch.testing.assert_close(mean[i, : len(x)], expected.mean(0), **CLOSE)
        torch.testing.assert_close(var[i, : len(x)], expected.var(0, correction=0), **CLOSE)
    assert var.amax((1, 2)).min() > 1e-3
    assert not torch.equal(sampler.outputs(held_out, 6, seed=4), f)


def test_statistics_are_those_of_the_batches_that_a_fit_samples(trained):
    stack, rows, _ = trained["mixed"]
    found = stacked_statistics(stack, rows, 16, STATES, SEEDS)
    whole = coordinates(found.mean, found.var, found.layers)
    assert whole.shape == (STATES, 5, 2 * (4 + 10))
    for i in range(5):
        alone = bn.MCBN(16, STATES).fit(stack.network(i), own(rows, i)[0], seed=SEEDS[i])
        torch.testing.assert_close(whole[:, i].mean(0), alone.batch_mean, **CLOSE)
        torch.testing.assert_close(whole[:, i] - alone.batch_mean, alone.fluctuations.deviations, **CLOSE)


def test_methods_may_share_what_was_collected(trained):
    stack, rows, held_out = trained["batch norm"]
    collected, executable = batch_statistics(stack, rows, 16, STATES), in_target_units(stack, rows)
    for method in METHODS.values():
        shared, fitted = batchnorm_sampler(method, collected, executable), fit_stacked(method, stack, rows)
        assert torch.equal(shared.outputs(held_out, 4), fitted.outputs(held_out, 4))
        posterior = shared.posterior
        assert (posterior.method, posterior.center, posterior.rows) == (type(method).__name__, method.center, 75)


def test_the_spread_is_what_the_method_says(trained, monkeypatch):
    """Twice the deviations, four times the variance, where outputs are linear in the deviations."""
    stack, rows, held_out = trained["batch norm"]
    original = bn.MCBN.distribution

    def variance(center):
        sampler = fit_stacked(bn.MCBN(16, STATES, center=center), stack, rows).at_batch_size(1e12)
        return sampler.moments(held_out, STATES)[1]

    before = {center: variance(center) for center in ("running", "batch")}
    monkeypatch.setattr(bn.MCBN, "distribution", lambda self, deviations: original(self, 2 * deviations))
    for center, expected in before.items():
        torch.testing.assert_close(variance(center), 4 * expected, rtol=1e-4, atol=0)


def test_effective_batch_sizes_scale_the_fluctuations_of_their_networks(trained):
    stack, rows, held_out = trained["batch norm"]
    fitted = fit_stacked(bn.MCBN(16, STATES, center="batch"), stack, rows)
    deviations = torch.randn(5, 5, 44, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def with_deviations(values):
        posterior = dataclasses.replace(fitted.posterior, fluctuations=Empirical(values))
        return dataclasses.replace(fitted, posterior=posterior)

    other = with_deviations(deviations).at_batch_size(torch.tensor([64, 16, 4, 16, 16]))
    states = other.sample(5)
    mean = torch.cat([states[f"{layer.name}.running_mean"] for layer in other.posterior.layers], -1)
    found = (mean - other.posterior.batch_mean[:, :22]).sort(0).values
    for i, factor in enumerate((0.5, 1, 2, 1, 1)):
        torch.testing.assert_close(found[:, i], factor * deviations[:, i, :22].sort(0).values)
    assert with_deviations(0 * deviations).moments(held_out, 5)[1].max() < 1e-20, "no deviations, no uncertainty"
    assert fitted.at_batch_size(64).batch_size.tolist() == [64.0] * 5
    assert fitted.batch_size.tolist() == [16.0] * 5


def test_points_are_those_of_each_network(trained):
    stack, rows, held_out = trained["mixed"]
    f = in_target_units(stack, rows).point(held_out)
    for i in range(5):
        x = own(held_out, i)[0]
        expected = raw_outputs(bn.deterministic(stack.network(i), bn.Gaussian()).predict(x).mean, rows, i)
        torch.testing.assert_close(f[i, : len(x)], expected, **CLOSE)


def test_outputs_in_other_units(trained):
    """Outputs are scaled and shifted in double precision, also those of networks in single precision."""
    networks, rows, held_out = task()
    stack, _ = together(networks, rows, epochs=1)
    states = fit_stacked(bn.MCBN(16, STATES), stack, rows).sample(4)
    scale, shift = torch.arange(1.0, 6.0)[:, None], torch.arange(5.0)[:, None]
    plain = StackedExecutable(stack, torch.ones(5, 1), torch.zeros(5, 1))
    moved = StackedExecutable(stack, scale, shift)
    f = plain.run(states, held_out)
    assert f.dtype == torch.float64
    assert torch.equal(moved.run(states, held_out), f * scale[:, None] + shift[:, None])
    (mean, var), (moved_mean, moved_var) = (output_moments(each, states, held_out) for each in (plain, moved))
    assert torch.equal(moved_mean, mean * scale[:, None] + shift[:, None])
    assert torch.equal(moved_var, var * scale[:, None].square())


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@CUDA
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("batch norm", bn.MCBN(16, STATES)),
        ("batch norm", bn.MCBN(16, STATES, center="batch")),
        ("batch norm", bn.StochasticBN(16, STATES)),
        ("batch norm", bn.GaussianBN(16)),
        ("dropout", bn.MCDropout()),
    ],
)
def test_on_a_gpu(family, method, dtype):
    """Outputs and moments are those of a CPU; kernels compute a part of them in single precision."""
    networks, rows, held_out = task(family, dtype, counts=(90, 90, 75, 90))
    here, _ = together(networks, rows, epochs=5)
    same = torch.tensor([0, 3])
    here, rows, held_out = here.take(same), rows.take(same), held_out.take(same)
    found = []
    for stack in (here, here.to("cuda")):
        placed = held_out.to(stack.device, stack.dtype)
        sampler = fit_stacked(method, stack, rows.to(stack.device, stack.dtype))
        points = sampler.executable.point(placed)
        found.append([points, sampler.outputs(placed, 6, seed=1), *sampler.moments(placed, 6, seed=1)])
    close = CLOSE if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-2}
    for expected, other in zip(*found, strict=True):
        torch.testing.assert_close(other.cpu(), expected, **close)


@CUDA
def test_low_rank_gaussians_on_a_gpu():
    """Directions may come out with the other sign there, and samples with them; the covariance is the same."""
    networks, rows, _ = task(dtype=torch.float64)
    here, _ = together(networks, rows, epochs=5)
    found = []
    for stack in (here, here.to("cuda")):
        sampler = fit_stacked(bn.GaussianBN(16, STATES, rank=6), stack, rows)
        factor, own_std = sampler.posterior.fluctuations.root()
        found.append(torch.einsum("rep,req->epq", factor, factor).cpu() + own_std.square().diag_embed().cpu())
    # Directions are rounded to 8 binary digits, which two computations may round apart.
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=2**-7 * float(found[0].abs().max()))
