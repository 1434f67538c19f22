"""NumPy's integers are taken wherever plain ones are, with the same result."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

import bayesnorm as bn
from bayesnorm import active, metrics
from bayesnorm.methods import dropout_precision
from bayesnorm.network import MomentRecorder
from bayesnorm.stacked import (
    Stack,
    StackedEnsemble,
    StackedRows,
    fit_stacked,
    stacked_moments,
    stacked_statistics,
    train_stacked,
)
from bayesnorm.theory import BatchNormKL, diagnose_each, unit_gaussians, weight_decay_prior
from bayesnorm.training import train
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.toy_regression import toy_regression

from .whole_numbers import LABELS, TwoOutputs, X, Y, assert_same, fitted, network

CASES = {}


def case(function):
    """A way to use the public face: a function of what makes its whole numbers, which gives what comes of them."""
    CASES[function.__name__] = function
    return function


@case
def mcbn_and_monte_carlo(whole):
    method = bn.MCBN(batch_size=whole(8), states=whole(6), layers=whole(1))
    posterior = method.fit(network(), (X, Y), seed=whole(3))
    engine = bn.MonteCarlo(samples=whole(5), chunk=whole(2), block_bytes=whole(100))
    return [posterior.predict(X, engine, seed=whole(1)).std, posterior.sample(whole(2), whole(1)), posterior.config()]


@case
def gaussian_bn_and_sigma_points(whole):
    posterior = bn.GaussianBN(batch_size=whole(8), states=whole(6), rank=whole(2)).fit(network(), (X, Y), seed=whole(3))
    engine = bn.SigmaPoints(rank=whole(2), chunk=whole(3))
    return [posterior.predict(X, engine).std, posterior.predict(X, bn.Delta(block_bytes=whole(100))).std]


@case
def stochastic_bn(whole):
    posterior = bn.StochasticBN(batch_size=whole(8), states=whole(6)).fit(network(), (X, Y), seed=whole(3))
    return posterior.predict(X, seed=whole(2)).std


@case
def mc_dropout(whole):
    posterior = bn.MCDropout().fit(network(), (X, Y), seed=whole(3))
    return [
        posterior.predict(X, bn.MonteCarlo(whole(4)), seed=whole(2)).std,
        dropout_precision(1.0, 0.9, whole(9), 0.1),
    ]


@case
def deep_ensemble(whole):
    method = bn.DeepEnsemble(members=whole(2), epochs=whole(2), batch_size=whole(16))
    posterior = method.fit(network(), (X, Y), bn.Gaussian(), seed=whole(3))
    return [
        posterior.predict(X, seed=whole(2)).std,
        posterior.sample(whole(3), whole(1)),
        posterior.outputs(whole(3), X),
    ]


@case
def bayes_by_backprop(whole):
    method = bn.BayesByBackprop(epochs=whole(2), batch_size=whole(16), kl_warmup=whole(1))
    posterior = method.fit(network(), (X, Y), seed=whole(3))
    return [posterior.predict(X, seed=whole(2)).std, posterior.kl(whole(3), whole(1)), posterior.elbo(X, Y, whole(3))]


@case
def mnf(whole):
    method = bn.MNF(epochs=whole(1), flows=whole(1), auxiliary_flows=whole(1), hidden=whole(4))
    posterior = method.fit(network(), (X, Y), seed=whole(3))
    return [posterior.predict(X, seed=whole(2)).std, posterior.config()]


@case
def changed_posteriors(whole):
    posterior = fitted()
    changed = [posterior.at_batch_size(whole(16)), posterior.at_layers(whole(1))]
    changed.append(bn.calibrate(posterior, X, Y, samples=whole(4), seed=whole(1)))
    suggested = bn.suggest_layers(posterior, X, Y, 1e9, samples=whole(4), seed=whole(1))
    return [own.predict(X).std for own in changed] + [option.score for option in suggested.options]


@case
def combined(whole):
    model = network()
    parts = bn.MCBN(batch_size=8, states=8).fit(model, (X, Y)), bn.MCDropout().fit(model, (X, Y))
    return bn.combine(*parts).predict(X, bn.MonteCarlo(whole(4)), seed=whole(2)).std


@case
def outputs_of_tuples(whole):
    return bn.MCBN(batch_size=8, states=8).fit(TwoOutputs(), (X, Y), output=whole(1)).predict(X).std


@case
def samples_of_predictives(whole):
    classes = fitted(3).predict(X)
    both = bn.MultiTask({"a": bn.Gaussian(), "b": (bn.Categorical(), whole(2))}, axis=whole(1))
    several = bn.MCBN(batch_size=8, states=8).fit(network(3), (X, Y), both).predict(X)
    found = [fitted().predict(X), classes, several]
    return [predictive.sample(whole(100), seed=whole(2)) for predictive in found]


@case
def likelihoods(whole):
    f = torch.randn(2, 60, 4, generator=torch.Generator().manual_seed(0))
    made = [
        bn.LogitNoise(samples=whole(8), seed=whole(2), ignore_index=whole(-100)),
        bn.Categorical(ignore_index=whole(-1), temperature=whole(2)),
        bn.StudentT(df=whole(4), axis=whole(-1)),
        bn.HeteroscedasticGaussian(axis=whole(1)),
    ]
    return [[own.predictive(f).mean, own.config(), json.dumps(own.config())] for own in made]


@case
def heads(whole):
    widened = bn.with_noise_head(network(2), noises=whole(1))
    joined = bn.joined_outputs(TwoOutputs(), [whole(1), whole(0)], axis=whole(1))
    return [widened(X), repr(widened), joined(X)]


@case
def training(whole):
    model = network()
    options = {"epochs": whole(3), "evaluate_every": whole(2), "patience": whole(1), "seed": whole(3)}
    history = train(model, X, Y, loss=mse_loss, batch_size=whole(16), validation=(X, Y), **options)
    return [dict(model.state_dict()), history.losses, history.scores]


@case
def stacked_training(whole):
    stack = Stack.of([paper_mlp(3, hidden=(5, 4), seed=seed) for seed in (1, 2)])
    rows = StackedRows.of(X, Y, [torch.arange(50), torch.arange(60)])
    options = {"epochs": whole(2), "evaluate_every": whole(1), "patience": whole(1), "seed": whole(3)}
    train_stacked(stack, rows, batch_size=whole(16), learning_rate=1e-2, validation=rows, **options)
    statistics = stacked_statistics(stack, rows, whole(8), whole(4), whole(1))
    moments = stacked_moments(stack, rows, whole(8), whole(1), whole(50))
    posterior = fit_stacked(bn.MCBN(whole(8), whole(4)), stack, rows, bn.Gaussian(missing=True), seed=whole(1))
    calibrated = bn.calibrate(
        posterior.with_likelihood(bn.Gaussian([1, 1], axis=whole(0), missing=True)),
        rows,
        rows.own_targets,
        groups=[whole(0), whole(1)],
        refinements=whole(2),
        samples=whole(3),
    )
    scores = metrics.crps(calibrated.predict(rows), rows.own_targets, each=whole(1))
    ensemble = StackedEnsemble.of(stack, whole(2), rows, bn.Gaussian())
    found = [statistics.mean, statistics.batch_size, moments.mean_std, posterior.fluctuations.deviations]
    return [stack.weights.tensors, *found, scores, calibrated.likelihood.precision, ensemble.predict(X).std]


@case
def choice_of_batch_size(whole):
    sizes, again = [whole(8), whole(32)], fitted()
    options = {"samples": whole(4), "seed": whole(1), "train_rows": whole(50), "validation": (X, Y)}
    post_hoc = bn.select_batch_size(again, (X, Y), batch_sizes=sizes, **options)
    refitted = bn.select_batch_size(
        lambda size: bn.MCBN(batch_size=size, states=4).fit(network(), (X, Y)), (X, Y), batch_sizes=sizes, samples=4
    )
    return [dataclasses.astuple(row) for row in (*post_hoc.rows, *refitted.rows)]


@case
def diagnoses(whole):
    options = {"batches": whole(20), "layers": whole(1), "seed": whole(1)}
    one = bn.diagnose(network(), X, whole(8), **options)
    several = bn.diagnose(network(), X, [whole(8), whole(16)], **options)
    watch = diagnose_each(X, whole(8), every=whole(2), **options)
    for epoch in (1, 2):
        watch(epoch, network())
    of_mean = one.at(whole(8)).layers[0].mean
    chance = of_mean.by_chance(repeats=whole(4), seed=whole(1))
    return [str(one), str(several), str(watch), of_mean.quantiles(whole(1)), chance]


@case
def priors(whole):
    prior = weight_decay_prior(whole(50), 2.0, 0.1)
    q = unit_gaussians(network(), X, whole(8), layers=whole(1), seed=whole(2))
    model = network().train()
    with BatchNormKL(model, prior, whole(8), layers=whole(1)) as divergence:
        model(X)
        found = divergence().detach()
    return [prior.std_std, q.mean_var, q.at_batch_size(whole(16)).mean_var, found]


@case
def recorded_moments(whole):
    model = network().train()
    recorder = MomentRecorder(model, whole(1))
    recorder.attach()
    model(X)
    return recorder.read().mean


@case
def active_learning(whole):
    learner = active.ActiveLearner(
        X,
        lambda rows, x: Y[rows],
        lambda x, y: fitted(),
        active.epistemic_variance,
        budget=whole(12),
        batch=whole(4),
        initial=whole(3),
        rows_per_call=whole(2),
        candidates=whole(20),
        engine=bn.MonteCarlo(whole(4)),
        seed=whole(3),
    )
    learner.run()
    predictive = fitted(3).predict(X)
    options = {"configurations": whole(20), "block_bytes": whole(4000)}
    chosen = active.choose(active.BatchBALD(**options), predictive, whole(3), seed=whole(1))
    greedy = active.greedy_variance_reduction(fitted().predict(X), whole(3))
    random = active.Random().choose(predictive, whole(3), seed=whole(2))
    return [learner.rows, chosen, greedy.rows, random, repr(active.BatchBALD(**options))]


@case
def scores(whole):
    predictive = fitted(3).predict(X)
    options = {"bins": whole(5), "ignore_index": whole(1)}
    return [metrics.ece(predictive, LABELS, **options), metrics.ece(predictive, LABELS, adaptive=True, **options)]


@case
def seeds_of_networks_and_data(whole):
    made = [paper_mlp(whole(3), hidden=(whole(4),), seed=whole(2)), paper_dropout_mlp(3, 0.1, seed=whole(2))]
    return [*(dict(model.state_dict()) for model in made), toy_regression(whole(2))]


@pytest.mark.parametrize("name", CASES)
def test_numpy_integers_give_what_plain_ones_give(name):
    assert_same(CASES[name](int), CASES[name](np.int64))


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64])
def test_other_integers_too(kind):
    for name in ("mcbn_and_monte_carlo", "samples_of_predictives", "training"):
        assert_same(CASES[name](int), CASES[name](kind))
