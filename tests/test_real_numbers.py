"""Real numbers of NumPy's types are as good as plain ones, wherever one is asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import bayesnorm as bn
from bayesnorm.methods.mc_dropout import dropout_precision
from bayesnorm.metrics import pll
from bayesnorm.selection import select_batch_size
from bayesnorm.theory import BatchNormKL, GaussianPrior, kl_divergence, unit_gaussians, weight_decay_prior
from bayesnorm.training import train
from experiments.networks import paper_dropout_mlp, paper_mlp

from .whole_numbers import X, Y, assert_same, fitted, network

KINDS = (np.float32, np.float64, np.float16, np.int64)


@pytest.fixture(scope="module")
def posterior():
    return fitted()


@pytest.mark.parametrize("kind", KINDS)
def test_effective_batch_sizes(posterior, kind):
    plain, found = posterior.at_batch_size(16.0), posterior.at_batch_size(kind(16))
    assert type(found.batch_size) is float
    assert_same(plain.predict(X).variance, found.predict(X).variance)
    pair = bn.ensemble([posterior, posterior]).at_batch_size(kind(16))
    assert_same(bn.ensemble([plain, plain]).predict(X).variance, pair.predict(X).variance)


def test_effective_batch_sizes_in_a_file(posterior, tmp_path):
    posterior.at_batch_size(np.float32(16)).save(tmp_path / "net.bayesnorm")
    assert bn.load(tmp_path / "net.bayesnorm", network()).batch_size == 16.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda number: bn.Gaussian(precision=number),
        lambda number: bn.Gaussian(precision=(number, number)),
        lambda number: bn.Laplace(number),
        lambda number: bn.StudentT(number, number),
        lambda number: bn.HeteroscedasticGaussian(number),
        lambda number: bn.Categorical(number),
        lambda number: bn.LogitNoise(number),
    ],
)
def test_likelihoods(make, kind):
    assert make(kind(4)) == make(4.0)
    assert json.loads(json.dumps(make(kind(4)).config())) == json.loads(json.dumps(make(4.0).config()))


@pytest.mark.parametrize("kind", KINDS[:3])
def test_methods_and_their_numbers(kind):
    plain = bn.BayesByBackprop(epochs=1, learning_rate=0.25, initial_std=0.5, delta=0.5, prior=(0.5, 1.0, 2.0))
    found = bn.BayesByBackprop(
        epochs=1,
        learning_rate=kind(0.25),
        initial_std=kind(0.5),
        delta=kind(0.5),
        prior=(kind(0.5), kind(1), kind(2)),
    )
    posteriors = [method.fit(network(), (X, Y), bn.Gaussian()) for method in (plain, found)]
    assert_same(*(posterior.predict(X[:5]).mean for posterior in posteriors))
    assert dropout_precision(kind(2), kind(0.5), 10, kind(0.25)) == dropout_precision(2, 0.5, 10, 0.25)
    assert type(dropout_precision(kind(2), kind(0.5), 10, kind(0.25))) is float


@pytest.mark.parametrize("kind", KINDS[:3])
def test_training(kind):
    found = []
    for decay in (0.25, kind(0.25)):
        torch.manual_seed(0)
        model = network()
        train(model, X, Y, loss=bn.Gaussian().loss, epochs=2, batch_size=20, weight_decay=decay, checkpoint_every=decay)
        found.append({name: value.clone() for name, value in model.state_dict().items()})
    assert_same(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_theory(posterior, kind):
    units = unit_gaussians(network(), X, 8)
    assert_same(units.at_batch_size(16.0).mean_var, units.at_batch_size(kind(16)).mean_var)
    plain, found = GaussianPrior(0.0, 2.0, 1.0, 2.0), GaussianPrior(kind(0), kind(2), kind(1), kind(2))
    assert_same(kl_divergence(units, plain), kl_divergence(units, found))
    assert weight_decay_prior(10, kind(2), kind(4)).std_std == weight_decay_prior(10, 2.0, 4.0).std_std
    assert type(BatchNormKL(network(), plain, kind(16)).batch_size) is float
    sizes = select_batch_size(posterior, (X, Y), batch_sizes=(kind(8), kind(16)), weight_decay=kind(2), samples=4).rows
    assert_same(
        *(
            [row.elbo for row in rows]
            for rows in (
                sizes,
                select_batch_size(posterior, (X, Y), batch_sizes=(8, 16), weight_decay=2, samples=4).rows,
            )
        )
    )


@pytest.mark.parametrize("kind", KINDS[:3])
def test_networks(kind):
    assert paper_mlp(3, eps=kind(0.5))[1].eps == 0.5
    assert paper_dropout_mlp(3, kind(0.5))[0].p == 0.5
    assert type(bn.add_dropout(network(), kind(0.5))[0].state_dict()) is type(network()[0].state_dict())
    heads = [bn.with_noise_head(network(), log_variance=number) for number in (-0.5, kind(-0.5))]
    assert_same(*(head.state_dict() for head in heads))


def test_scores(posterior):
    predictive = posterior.predict(X)
    assert_same(pll(predictive, Y, floor=0.5), pll(predictive, Y, floor=np.float32(0.5)))
    assert_same(predictive.interval(0.5), predictive.interval(np.float32(0.5)))
