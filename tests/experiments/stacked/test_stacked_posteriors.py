"""Samplers over a stack: every network is as uncertain as if the method had been fitted on it alone."""

import pytest
import torch

import bayesnorm as bn
from bayesnorm.tabular.stacked import passes
from experiments.stacked_networks import fit_stacked

from ...tabular.stacked.stacked_networks import in_target_units as raw_outputs, rows_of_network, task, together

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
    results = {}
    for family in ("batch norm", "dropout", "mixed"):
        networks, rows, held_out = task(family, torch.float64)
        results[family] = together(networks, rows, epochs=3)[0], rows, held_out
    return results


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
        x = rows_of_network(held_out, i)[0]
        alone = method.fit(stack.network(i), rows_of_network(rows, i)[0], seed=SEED).at_batch_size(SIZES[i])
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
        x = rows_of_network(held_out, i)[0]
        alone = bn.MCDropout().fit(stack.network(i), likelihood=bn.Gaussian())
        expected = raw_outputs(engine.outputs(alone, x, seed=3), rows, i)
        torch.testing.assert_close(f[:, i, : len(x)], expected, **CLOSE)
        torch.testing.assert_close(mean[i, : len(x)], expected.mean(0), **CLOSE)
        torch.testing.assert_close(var[i, : len(x)], expected.var(0, correction=0), **CLOSE)
    assert var.amax((1, 2)).min() > 1e-3
    assert not torch.equal(sampler.outputs(held_out, 6, seed=4), f)


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
    results = []
    for stack in (here, here.to("cuda")):
        placed = held_out.to(stack.device, stack.dtype)
        sampler = fit_stacked(method, stack, rows.to(stack.device, stack.dtype))
        points = sampler.executable.point(placed)
        results.append([points, sampler.outputs(placed, 6, seed=1), *sampler.moments(placed, 6, seed=1)])
    close = CLOSE if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-2}
    for expected, other in zip(*results, strict=True):
        torch.testing.assert_close(other.cpu(), expected, **close)
