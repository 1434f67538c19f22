"""Posteriors of the regression benchmark over stacked networks: each as the library has it for one network."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

import bayesnorm as bn
from bayesnorm.calibration import select_batch_size
from bayesnorm.network import UnitMoments, collect_moments, mini_batches
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from experiments.networks import paper_mlp
from experiments.stacked_networks import stacked_moments, standardised_rows
from experiments.uci.posteriors import MULTIPLES, RANK, batchnorm_posteriors, elbos

M, STATES, WIDTH = 16, 60, 12


def trained(lengths=(80, 70), table=100):
    """Networks in double precision with their rows."""
    generator = torch.Generator().manual_seed(1)
    x = 2 * torch.randn(table, 4, generator=generator, dtype=torch.float64) + 1
    y = 3 * torch.sin(x[:, :1]) + x[:, 1:2] + 0.3 * torch.randn(table, 1, generator=generator, dtype=torch.float64)
    stack = Stack.from_networks(
        [paper_mlp(4, hidden=(WIDTH, WIDTH), eps=1e-3, seed=i).double() for i in range(len(lengths))]
    )
    picked = [torch.randperm(table, generator=generator)[:n] for n in lengths]
    rows = standardised_rows(x, y, picked)
    train_stacked(
        stack,
        rows,
        epochs=20,
        batch_size=M,
        loss=HalfSquaredError(),
        seeds=[0] * len(stack),
        weight_decay=[1e-3] * len(stack),
        learning_rate=1e-2,
    )
    examples = [(rows.inputs()[i, :n], rows.targets()[i, :n]) for i, n in enumerate(lengths)]
    return SimpleNamespace(
        stack=stack, rows=rows, examples=examples, networks=[stack.network(i) for i in range(len(lengths))]
    )


@pytest.fixture(scope="module")
def task():
    result = trained()
    result.posteriors, result.moments = batchnorm_posteriors(result.stack, result.rows, M, STATES)
    return result


def one_pass(task):
    """Moments of single rows from one pass over each network's, as a method's `fit` takes them."""
    values = [
        collect_moments(network, mini_batches(x, M, 1, 0), None, None)
        for network, (x, _) in zip(task.networks, task.examples, strict=True)
    ]
    mean, var = (torch.stack([getattr(one.statistics, name) for one in values], 1) for name in ("mean", "var"))
    mean_std, square_std = (torch.stack([getattr(one, name) for one in values]) for name in ("mean_std", "square_std"))
    statistics = dataclasses.replace(stacked_moments(task.stack, task.rows, M).statistics, mean=mean, var=var)
    return UnitMoments(statistics, mean_std, square_std)


METHODS = {
    "MCBN": bn.MCBN(M, STATES, center="batch"),
    "MCBN centred": bn.MCBN(M, STATES),
    f"GaussianBN rank {RANK}": bn.GaussianBN(M, STATES, center="batch", rank=RANK),
    "StochasticBN": bn.StochasticBN(M, STATES, center="batch"),
}


def test_elbos_differ_as_select_batch_size_has_them(task):
    tau, decay = torch.tensor([6.0, 2.0]).double(), torch.tensor([1e-2, 1e-3])
    raw = tau / task.rows.scales.y_std.flatten().square()
    result = elbos(task.posteriors["MCBN"], task.rows, one_pass(task), decay, raw, STATES)
    assert result.shape == (len(MULTIPLES), 2)
    for i, network in enumerate(task.networks):
        posterior = METHODS["MCBN"].fit(network, task.examples[i][0], bn.Gaussian(float(tau[i])), seed=0)
        sizes = [M * multiple for multiple in MULTIPLES]
        choice = select_batch_size(
            posterior, task.examples[i], batch_sizes=sizes, weight_decay=float(decay[i]), samples=STATES
        )
        expected = torch.tensor([row.elbo for row in choice.rows]).double()
        torch.testing.assert_close(result[:, i] - result[3, i], expected - expected[3], rtol=1e-6, atol=1e-5)
        assert int(result[:, i].argmax()) == int(expected.argmax())
