"""Posteriors of the regression benchmark over stacked networks: each as the library has it for one network."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch.distributions import Normal

import bayesnorm as bn
from bayesnorm.calibration import select_batch_size
from bayesnorm.network import UnitMoments, collect_moments, mini_batches
from bayesnorm.posterior import Empirical
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from bayesnorm.theory import kl_divergence, unit_gaussians, weight_decay_prior
from experiments.networks import paper_mlp
from experiments.stacked_networks import stacked_moments, standardised_rows
from experiments.uci.posteriors import BN_DRAWN, ELBO_ROWS, MULTIPLES, RANK, batchnorm_posteriors, elbos

M, STATES, WIDTH = 16, 60, 12
EXACT = {"rtol": 1e-9, "atol": 1e-9}
"""Sums of a few hundred numbers in double precision, in another order."""

FAR = 5.0
"""Standard errors that the largest of some hundred numbers stays within."""


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
    own = [(rows.inputs()[i, :n], rows.targets()[i, :n]) for i, n in enumerate(lengths)]
    return SimpleNamespace(stack=stack, rows=rows, own=own, networks=[stack.network(i) for i in range(len(lengths))])


@pytest.fixture(scope="module")
def task():
    found = trained()
    found.posteriors, found.moments = batchnorm_posteriors(found.stack, found.rows, M, STATES)
    return found


def one_pass(task):
    """Moments of single rows from one pass over each network's, as a method's `fit` takes them."""
    each = [
        collect_moments(network, mini_batches(x, M, 1, 0), None, None)
        for network, (x, _) in zip(task.networks, task.own, strict=True)
    ]
    mean, var = (torch.stack([getattr(one.statistics, name) for one in each], 1) for name in ("mean", "var"))
    mean_std, square_std = (torch.stack([getattr(one, name) for one in each]) for name in ("mean_std", "square_std"))
    statistics = dataclasses.replace(stacked_moments(task.stack, task.rows, M).statistics, mean=mean, var=var)
    return UnitMoments(statistics, mean_std, square_std)


METHODS = {
    "MCBN": bn.MCBN(M, STATES, center="batch"),
    "MCBN centred": bn.MCBN(M, STATES),
    f"GaussianBN rank {RANK}": bn.GaussianBN(M, STATES, center="batch", rank=RANK),
    "StochasticBN": bn.StochasticBN(M, STATES, center="batch"),
}


@pytest.mark.parametrize("name", METHODS)
def test_outputs_are_those_of_the_librarys_method(task, name):
    """In the target's units, draw for draw."""
    f = task.posteriors[name].outputs(task.rows, STATES)
    assert f.shape == (STATES, 2, 80, 1)
    for i, network in enumerate(task.networks):
        x, _ = task.own[i]
        expected = bn.MonteCarlo(STATES).outputs(METHODS[name].fit(network, x, seed=0), x)
        expected = expected * task.rows.scales.y_std[i] + task.rows.scales.y_mean[i]
        torch.testing.assert_close(f[:, i, : len(x)], expected, **EXACT)
    assert f.std(0).min() > 1e-3


def test_every_posterior_is_there(task):
    assert [*task.posteriors] == [*BN_DRAWN]
    assert METHODS.keys() == set(BN_DRAWN) - {"GaussianBN"}
    for name, sampler in task.posteriors.items():
        posterior = sampler.posterior
        assert posterior.center == ("running" if name == "MCBN centred" else "batch")
        assert torch.equal(posterior.batch_mean, task.posteriors["MCBN"].posterior.batch_mean), "one centre for all"


def test_gaussian_bn_has_the_librarys_variances(task):
    """They come from random batches here, and differ from those of one pass by what other seeds change in either."""
    fluctuations = task.posteriors["GaussianBN"].posterior.fluctuations
    assert len(fluctuations.factor) == 0
    seeds = range(12)
    others = [stacked_moments(task.stack, task.rows, M, seed=seed) for seed in seeds]
    method = bn.GaussianBN(M, center="batch")
    of_batches = torch.stack([method.summarised(moments)[1].independent_std.square() for moments in others])
    torch.testing.assert_close(fluctuations.independent_std.square(), of_batches[0])
    for i, network in enumerate(task.networks):
        fits = [method.fit(network, task.own[i][0], seed=seed) for seed in seeds]
        of_passes = torch.stack([fit.fluctuations.independent_std.square() for fit in fits])
        passes, batches = (v.var(0) / v.mean(0).square() for v in (of_passes, of_batches[:, i]))
        ratio = of_batches[0, i] / of_passes.mean(0)
        assert ((ratio - 1).abs() < FAR * (passes / len(seeds) + batches).sqrt()).all()


def test_other_batch_sizes_are_those_of_the_librarys_posterior(task):
    sizes = torch.tensor([4.0 * M, M / 2])
    f = task.posteriors["MCBN"].at_batch_size(sizes).outputs(task.rows, STATES)
    for i, network in enumerate(task.networks):
        x, _ = task.own[i]
        posterior = METHODS["MCBN"].fit(network, x, seed=0).at_batch_size(float(sizes[i]))
        expected = bn.MonteCarlo(STATES).outputs(posterior, x)
        expected = expected * task.rows.scales.y_std[i] + task.rows.scales.y_mean[i]
        torch.testing.assert_close(f[:, i, : len(x)], expected, **EXACT)


def test_doubled_deviations_have_fourfold_variance(task, monkeypatch):
    monkeypatch.setattr(bn.MCBN, "distribution", lambda _, deviations: Empirical(2 * deviations))
    changed = batchnorm_posteriors(task.stack, task.rows, M, STATES)[0]
    for name in ("MCBN", "MCBN centred"):
        before, after = task.posteriors[name], changed[name]
        same = before.at_batch_size(M / 4).outputs(task.rows, STATES)
        torch.testing.assert_close(after.outputs(task.rows, STATES), same, **EXACT)
        # The further terms of the variance fall off as the root of the batch size, or faster.
        small, large = (sampler.at_batch_size(1e8 * M).moments(task.rows, STATES)[1] for sampler in (before, after))
        torch.testing.assert_close(large / small, torch.full_like(small, 4.0), rtol=1e-2, atol=0)


def test_elbos_differ_as_select_batch_size_has_them(task):
    tau, decay = torch.tensor([6.0, 2.0]).double(), torch.tensor([1e-2, 1e-3])
    raw = tau / task.rows.scales.y_std.flatten().square()
    found = elbos(task.posteriors["MCBN"], task.rows, one_pass(task), decay, raw, STATES)
    assert found.shape == (len(MULTIPLES), 2)
    for i, network in enumerate(task.networks):
        posterior = METHODS["MCBN"].fit(network, task.own[i][0], bn.Gaussian(float(tau[i])), seed=0)
        sizes = [M * multiple for multiple in MULTIPLES]
        choice = select_batch_size(
            posterior, task.own[i], batch_sizes=sizes, weight_decay=float(decay[i]), samples=STATES
        )
        expected = torch.tensor([row.elbo for row in choice.rows]).double()
        torch.testing.assert_close(found[:, i] - found[3, i], expected - expected[3], rtol=1e-6, atol=1e-5)
        assert int(found[:, i].argmax()) == int(expected.argmax())


def test_elbos_of_many_rows_look_at_the_first_thousand():
    task = trained(lengths=(1100,), table=1100)
    posterior = batchnorm_posteriors(task.stack, task.rows, M, RANK + 1)[0]["MCBN"]
    tau, decay = 3.0, 1e-2
    raw = torch.tensor([tau]) / task.rows.scales.y_std[0].square()
    found = elbos(posterior, task.rows, one_pass(task), torch.tensor([decay]), raw, 6)[:, 0]
    x, y = (part[:ELBO_ROWS] for part in task.own[0])
    prior = weight_decay_prior(1100, tau, decay / 2)
    q = unit_gaussians(task.networks[0], task.own[0][0], M)
    alone = bn.MCBN(M, RANK + 1, center="batch").fit(task.networks[0], task.own[0][0], seed=0)
    expected = []
    for multiple in MULTIPLES:
        f = bn.MonteCarlo(6).outputs(alone.at_batch_size(M * multiple), x)
        fit = Normal(f, tau**-0.5).log_prob(y).mean() * 1100
        expected.append(fit - kl_divergence(q.at_batch_size(M * multiple), prior).sum())
    expected = torch.stack(expected)
    torch.testing.assert_close(found - found[3], expected - expected[3], rtol=1e-7, atol=1e-6)
