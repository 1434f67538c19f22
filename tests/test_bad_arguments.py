"""Arguments of predictions that cannot be: a `BayesNormError` that names them, what came and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from experiments.networks import paper_mlp
from experiments.toy_regression import toy_regression

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


def network(outputs=1):
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, outputs)).eval()


@pytest.fixture
def posterior():
    return bn.MCBN(batch_size=8, states=8).fit(network(), X)


@pytest.mark.parametrize("engine", [64, "delta", bn.Delta, bn.MonteCarlo])
def test_engines(posterior, engine):
    with pytest.raises(bn.BayesNormError, match=r"engine must be an object such as MonteCarlo\(samples=256\), got .*"):
        posterior.predict(X, engine)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "a", None, True])
@pytest.mark.parametrize("engine", [None, bn.SigmaPoints(2), bn.Delta()], ids=lambda engine: type(engine).__name__)
def test_seeds(posterior, engine, seed):
    with pytest.raises(bn.BayesNormError, match=rf"seed must be a whole number from 0, got {seed!r}"):
        posterior.predict(X, engine, seed=seed)


@pytest.mark.parametrize("make", [lambda seed: paper_mlp(2, seed=seed), lambda seed: toy_regression(seed=seed)])
@pytest.mark.parametrize("seed", [-1, 1.5, "a", None])
def test_seeds_of_networks_and_data(make, seed):
    with pytest.raises(bn.BayesNormError, match=rf"seed must be a whole number from 0, got {seed!r}"):
        make(seed)


@pytest.mark.parametrize("likelihood", [bn.Gaussian, "gaussian", 4.0])
def test_likelihoods(posterior, likelihood):
    def all_ways():
        yield lambda: bn.MCBN(batch_size=8, states=4).fit(network(), X, likelihood)
        yield lambda: bn.MCDropout(p=0.1).fit(bn.add_dropout(network(), 0.1), X, likelihood)
        yield lambda: bn.BayesByBackprop(epochs=1).fit(network(), (X, X[:, :1]), likelihood)
        yield lambda: bn.DeepEnsemble(members=2, epochs=1).fit(network(), (X, X[:, :1]), likelihood)
        yield lambda: bn.deterministic(network(), likelihood)
        yield lambda: bn.ensemble([network(), network()], likelihood)
        yield lambda: posterior.with_likelihood(likelihood)

    for way in all_ways():
        with pytest.raises(bn.BayesNormError, match=r"likelihood must be .*Gaussian\(\) or Categorical\(\).*, got .*"):
            way()


@pytest.mark.parametrize("level", [0, 1, -0.5, float("nan"), "a", None, [0.1, 0.9], torch.tensor([0.1, 0.9])])
def test_levels(posterior, level):
    predictive = posterior.predict(X)
    for function in (predictive.interval, predictive.quantile):
        with pytest.raises(
            bn.BayesNormError, match=r"level must be .*a probability strictly between 0 and 1.*, got .*"
        ):
            function(level)


def test_levels_of_other_libraries_are_levels(posterior):
    predictive = posterior.predict(X)
    expected = predictive.quantile(0.75)
    for level in (np.float32(0.75), np.float64(0.75), torch.tensor(0.75)):
        assert torch.equal(predictive.quantile(level), expected)


@pytest.mark.parametrize("outputs", [1, 3])
def test_samples(outputs):
    likelihood = bn.Gaussian() if outputs == 1 else bn.Categorical()
    predictive = bn.MCBN(batch_size=8, states=8).fit(network(outputs), X, likelihood).predict(X)
    for n in (0, -1, 1.5, "a", None, True):
        with pytest.raises(bn.BayesNormError, match=rf"n must be a whole number of at least 1, got {n!r}"):
            predictive.sample(n)
    for seed in (-1, 1.5, "a", None):
        with pytest.raises(bn.BayesNormError, match=rf"seed must be a whole number from 0, got {seed!r}"):
            predictive.sample(2, seed=seed)


@pytest.mark.parametrize("value", [0, -1, 2.5, "a", True])
def test_sizes_of_engines(value):
    for make in (lambda: bn.SigmaPoints(2, chunk=value), lambda: bn.Delta(block_bytes=value)):
        with pytest.raises(bn.BayesNormError, match=rf"must be a whole number of at least 1, got {value!r}"):
            make()


def test_sparse_inputs(posterior):
    for engine in (None, bn.Delta()):
        with pytest.raises(
            bn.BayesNormError, match=r"x is a torch.sparse_coo tensor. Pass a dense one, such as x.to_dense"
        ):
            posterior.predict(X.to_sparse(), engine)
    with pytest.raises(bn.BayesNormError, match=r"train_data is a torch.sparse_coo tensor"):
        bn.MCBN(batch_size=8).fit(network(), X.to_sparse())


def test_a_module_is_no_choice_of_layers():
    model = network()
    with pytest.raises(bn.BayesNormError, match=r"layers must be names, a predicate.*, got BatchNorm1d"):
        bn.MCBN(batch_size=8, layers=model[1]).fit(model, X)
