"""Calls with numbers: fits, samples and predictions."""

from argument_kinds import (
    BATCH,
    FROM_0,
    FROM_1,
    FROM_2,
    HUGE,
    LEAST_0,
    PRIOR,
    SAMPLES,
    Call,
    accepted,
    function,
    layers,
    number,
    seed,
    whole,
)
from counted_networks import X, Y, combination, fitted, network, predictive, tasks, two_outputs, variational

import bayesnorm as bn
from bayesnorm.shift import DriftMonitor

_fit = {"batch_size": whole(8, BATCH, (1, 0, -3), none=True), "seed": seed(), "progress": function()}


def _fit_batchnorm(method, **options):
    posterior = method.fit(network(1), (X, Y), **options)
    return [posterior.predict(X).std, posterior.config()]


def _deep_ensemble_fit(seed, progress, **settings):
    method = bn.DeepEnsemble(2, **settings)
    return method.fit(network(1), (X, Y), bn.Gaussian(), seed=seed, progress=progress).predict(X).std


def _mnf_fit(seed, **settings):
    posterior = bn.MNF(**settings).fit(network(1), (X, Y), seed=seed)
    return [posterior.predict(X).std, posterior.config()]


def _at_batch_size(batch_size):
    posterior = fitted(1).at_batch_size(batch_size)
    pair = bn.ensemble([fitted(1), fitted(1)]).at_batch_size(batch_size)
    return [posterior.batch_size, posterior.config(), posterior.predict(X).std, pair.predict(X).std]


def _drift_monitor(level, seed):
    monitor = DriftMonitor(fitted(1), level, seed)
    return [monitor.level, monitor.seed]


CALLS = {
    # Fits.
    "mcbn_fit": Call(lambda batch_size, **options: _fit_batchnorm(bn.MCBN(batch_size, states=6), **options), **_fit),
    "gaussian_bn_fit": Call(
        lambda batch_size, **options: _fit_batchnorm(bn.GaussianBN(batch_size, states=6, rank=2), **options), **_fit
    ),
    "stochastic_bn_fit": Call(
        lambda batch_size, **options: _fit_batchnorm(bn.StochasticBN(batch_size, states=6), **options), **_fit
    ),
    "layers_of_a_fit": Call(lambda layers: _fit_batchnorm(bn.MCBN(8, states=6, layers=layers)), layers=layers()),
    "output_of_a_fit": Call(
        lambda output: bn.MCBN(batch_size=8, states=8).fit(two_outputs(), (X, Y), output=output).predict(X).std,
        output=accepted(1),
    ),
    "mc_dropout_fit": Call(
        lambda p, **options: bn.MCDropout(p=p).fit(network(1), (X, Y), **options).predict(X, bn.MonteCarlo(4)).std,
        seed=seed(),
        p=number(0.5, "a rate from 0 to below 1", (-1.0, 1), none=True),
        progress=function(),
    ),
    "deep_ensemble_fit": Call(
        _deep_ensemble_fit,
        epochs=whole(2, FROM_1),
        batch_size=whole(16, FROM_2, (1,), none=True),
        learning_rate=number(0.25, FROM_0, (-1,), none=True),
        weight_decay=number(0.25, FROM_0, (-1,)),
        seed=seed(),
        progress=function(),
    ),
    "bayes_by_backprop_fit": Call(
        lambda prior, **options: (
            bn.BayesByBackprop(epochs=1, prior=prior).fit(network(1), (X, Y), **options).predict(X).std
        ),
        seed=seed(),
        prior=number(0.5, PRIOR, but=(HUGE,)),
        progress=function(),
    ),
    "scale_mixture": Call(
        lambda prior: bn.BayesByBackprop(epochs=1, prior=prior).fit(network(1), (X, Y)).predict(X).std,
        prior=accepted((0.5, 1.0, 2.0)),
    ),
    "mnf_fit": Call(_mnf_fit, seed=seed(), epochs=whole(1), flows=whole(1, LEAST_0, (-1,)), hidden=whole(4)),
    # Posteriors and predictives.
    "predict": Call(lambda seed: fitted(1).predict(X, seed=seed).std, seed=seed()),
    "predict_with_sigma_points": Call(lambda seed: fitted(1).predict(X, bn.SigmaPoints(2), seed=seed).std, seed=seed()),
    "predict_with_delta": Call(lambda seed: fitted(1).predict(X, bn.Delta(), seed=seed).std, seed=seed()),
    "sample": Call(lambda n, seed: fitted(1).sample(n, seed), n=whole(2), seed=seed()),
    "sample_an_ensemble": Call(
        lambda n, seed: bn.ensemble([fitted(1), fitted(1)]).sample(n, seed), n=whole(3), seed=seed()
    ),
    "outputs": Call(lambda n, seed: fitted(1).outputs(n, X, seed), n=whole(3), seed=seed()),
    "sample_a_combination": Call(lambda n, seed: combination().sample(n, seed), n=whole(3), seed=seed()),
    "sample_weights": Call(lambda n, seed: variational().sample(n, seed), n=whole(3), seed=seed()),
    "kl_divergence_of_weights": Call(
        lambda samples, seed: variational().kl(samples, seed), samples=whole(3, name="n"), seed=seed()
    ),
    "elbo": Call(lambda samples, seed: variational().elbo(X, Y, samples, seed), samples=whole(3, SAMPLES), seed=seed()),
    "at_batch_size": Call(_at_batch_size, batch_size=number(16.0)),
    "at_batch_size_of_a_combination": Call(
        lambda batch_size: combination().at_batch_size(batch_size).predict(X).std, batch_size=number(16.0)
    ),
    "at_layers": Call(lambda layers: fitted(1).at_layers(layers).predict(X).std, layers=layers()),
    "adapt": Call(
        lambda strength: bn.adapt(fitted(1), X, strength=strength).predict(X).std,
        strength=number(0.5, "a number from 0 to 1, or None", (-1.0, 1.5), none=True, but=(HUGE,)),
    ),
    "drift_monitor": Call(
        _drift_monitor, level=number(0.5, "a number between 0 and 1", (0, 1), but=(HUGE,)), seed=seed()
    ),
    "sample_real_targets": Call(lambda n, seed: predictive(1).sample(n, seed), n=whole(100), seed=seed()),
    "sample_classes": Call(lambda n, seed: predictive(3).sample(n, seed), n=whole(100), seed=seed()),
    "sample_tasks": Call(lambda n, seed: tasks().sample(n, seed), n=whole(100), seed=seed()),
}
