"""Calls with numbers: functions of a posterior, networks, training, theory, scores and active learning."""

import dataclasses
import math
import warnings

from argument_kinds import (
    BATCH,
    FROM_0,
    FROM_1,
    FROM_2,
    HUGE,
    LEAST_0,
    PER_UNIT,
    SAMPLES,
    Call,
    accepted,
    function,
    layers,
    number,
    seed,
    whole,
)
from counted_networks import (
    LABELS,
    PASSES,
    CountedNetwork,
    X,
    Y,
    diagnosis,
    fitted,
    network,
    predictive,
    pruned,
    two_outputs,
    units,
)
from torch import nn
from torch.nn.functional import mse_loss

import bayesnorm as bn
from bayesnorm import active, metrics
from bayesnorm.compression import prune_channels
from bayesnorm.network import MomentRecorder
from bayesnorm.theory import BatchNormKL, kl_divergence, unit_gaussians, weight_decay_prior
from bayesnorm.training import Teacher, relative_adam, train

SIZES = "whole numbers of at least 2, such as (16, 32)"

_count = whole(3, "a whole number from 1 to 60, the number of candidates", (0, 61))


def _select_batch_size(size, **options):
    chosen = bn.select_batch_size(fitted(1), (X, Y), batch_sizes=[8, size], validation=(X, Y), **options)
    return [dataclasses.astuple(row) for row in chosen.rows]


def _select_batch_size_of_fits(size):
    def fit(batch_size):
        return bn.MCBN(batch_size, states=4).fit(network(1), (X, Y))

    chosen = bn.select_batch_size(fit, (X, Y), batch_sizes=[8, size], samples=4)
    return [dataclasses.astuple(row) for row in chosen.rows]


def _with_noise_head(**options):
    widened = bn.with_noise_head(network(2), **options)
    return [dict(widened.state_dict()), repr(widened)]


def _training(**options):
    model = CountedNetwork()
    PASSES.clear()
    history = train(model, X, Y, loss=mse_loss, validation=(X, Y), **options)
    return [dict(model.state_dict()), history.losses, history.scores]


def _teacher(**options):
    made = Teacher(network(1), **options)
    return [made.temperature, made.weight]


def _gaussians_at_batch_size(batch_size):
    resized = units().at_batch_size(batch_size)
    return [resized.batch_size, resized.mean_var, kl_divergence(resized, weight_decay_prior(50, 2.0, 0.5))]


def _batchnorm_kl(batch_size, layers):
    model = CountedNetwork().train()
    PASSES.clear()
    with BatchNormKL(model, weight_decay_prior(50, 2.0, 0.5), batch_size, layers=layers) as divergence:
        model(X)
        return [divergence.batch_size, divergence().detach()]


def _moment_recorder(layers):
    model = CountedNetwork().train()
    PASSES.clear()
    recorder = MomentRecorder(model, layers)
    recorder.attach()
    model(X)
    return recorder.read().mean


def _active_learner(**options):
    learner = active.ActiveLearner(
        X,
        lambda rows, x: Y[rows],
        lambda x, y: fitted(1),
        active.epistemic_variance,
        engine=bn.MonteCarlo(4),
        **options,
    )
    learner.run()
    return learner.rows


def _choose_by_batch_bald(**options):
    chosen = active.batch_bald(predictive(3), **options)
    return [chosen.rows, chosen.gains]


def _channels(**options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The smaller network", bn.BayesNormWarning)
        return dict(prune_channels(fitted(1), X, **options).network.state_dict())


CALLS = {
    # Functions of a posterior.
    "calibrate": Call(
        lambda **options: bn.calibrate(fitted(1), X, Y, **options).predict(X).std,
        samples=whole(4, SAMPLES, none=True),
        seed=seed(),
        refinements=whole(2, LEAST_0, (-1,)),
        evidence=number(0.5, FROM_0, (-1,)),
    ),
    "batch_sizes_of_calibrate": Call(
        lambda batch_size: bn.calibrate(fitted(1), X, Y, batch_size=[8, batch_size], samples=4).predict(X).std,
        batch_size=number(16.0),
    ),
    "select_batch_size": Call(
        _select_batch_size,
        size=accepted(32),
        samples=whole(4, SAMPLES),
        seed=seed(),
        train_rows=whole(50, none=True),
        weight_decay=number(2.0),
    ),
    "select_batch_size_of_fits": Call(_select_batch_size_of_fits, size=accepted(32)),
    "suggest_layers": Call(
        lambda budget, **options: [
            option.score for option in bn.suggest_layers(fitted(1), X, Y, budget, **options).options
        ],
        budget=number(1e9, "a positive number (times one forward pass)", but=(math.inf, HUGE)),
        samples=whole(4, SAMPLES),
        seed=seed(),
    ),
    "compress": Call(
        lambda **options: dict(bn.compress(pruned(), **options).network.state_dict()),
        threshold=number(0.5, "a finite number", (), none=True),
        tolerance=number(0.5, FROM_0, (-1,)),
        looks=whole(2, LEAST_0, (-1,)),
    ),
    "channels": Call(
        _channels,
        multiply_adds=number(0.5, "a number from 0.05 to 1", (0, 0.04, 1.5)),
        seed=seed(),
    ),
    # Networks, training and data.
    "add_dropout": Call(
        lambda p: [module.p for module in bn.add_dropout(network(1), p) if isinstance(module, nn.Dropout)],
        p=number(0.5, "a rate between 0 and 1", (0, 1)),
    ),
    "with_noise_head": Call(
        _with_noise_head, log_variance=number(-0.5, "a finite number", ()), noises=whole(1, none=True)
    ),
    "joined_outputs": Call(
        lambda entry, axis: bn.joined_outputs(two_outputs(), [entry, 0], axis=axis)(X),
        entry=accepted(1),
        axis=whole(1, "1, or -1 for the last axis", (0,)),
    ),
    "training": Call(
        _training,
        epochs=whole(3, FROM_1),
        batch_size=whole(16, FROM_2, (1,), but=(None,)),
        learning_rate=number(0.25, FROM_0, (-1,), none=True),
        weight_decay=number(0.25, FROM_0, (-1,)),
        evaluate_every=whole(2, FROM_1),
        patience=whole(1, FROM_1, none=True),
        checkpoint_every=number(0.25, FROM_0, (-1,)),
        evaluate=function(),
        on_epoch=function(),
        transform=function(),
        seed=seed(),
    ),
    "relative_adam_optimiser": Call(
        lambda share: [group["lr"] for group in relative_adam(network(1).parameters(), share).param_groups],
        share=number(0.5, FROM_0, (-1,)),
    ),
    "teacher": Call(
        _teacher, temperature=number(2, "a number above 0"), weight=number(0.5, FROM_0, (-1,)), transform=function()
    ),
    "ood_scores": Call(
        lambda **options: bn.ood_scores(fitted(1), X, X.repeat(4, 1), **options).scores["epistemic"],
        samples=whole(4, SAMPLES, none=True),
        seed=seed(),
    ),
    "doctor": Call(
        lambda **options: [finding.text for finding in bn.doctor(network(1), **options).findings],
        batch_size=whole(8, "the batch size of training, at least 2", (1, 0), none=True),
        seed=seed(),
    ),
    "as_module": Call(
        lambda **options: bn.as_module(fitted(1), X, **options)(X),
        samples=whole(3, SAMPLES, none=True),
        seed=seed(),
        level=number(0.5, "a probability strictly between 0 and 1", (0, 1, -1)),
        group=whole(2, none=True),
    ),
    # Theory.
    "diagnose": Call(
        lambda **options: str(bn.diagnose(network(1), X, **options)),
        batches=whole(20, "a whole number of at least 20, better a few hundred", (19,)),
        seed=seed(),
        batch_sizes=whole(8, SIZES, (1, 0)),
        layers=layers(),
    ),
    "diagnose_at_several_batch_sizes": Call(
        lambda size: str(bn.diagnose(network(1), X, [8, size], batches=20)),
        size=dataclasses.replace(whole(16, SIZES, (1, 0), name="batch_sizes"), shown=lambda size: [8, size]),
    ),
    "diagnosis_at": Call(lambda size: diagnosis().at(size).layers[0].mean.distance, size=accepted(8)),
    "prior_of_weight_decay": Call(
        lambda **options: weight_decay_prior(**options).std_std,
        rows=whole(50, "the number of training examples, at least 1"),
        precision=number(2, "a positive finite number"),
        weight_decay=number(0.25, PER_UNIT),
    ),
    "gaussians_of_units": Call(
        lambda batch_size, **options: unit_gaussians(network(1), X, batch_size, **options).mean_var,
        layers=layers(),
        batch_size=whole(8, BATCH, (1,), none=True),
        seed=seed(),
    ),
    "gaussians_at_batch_size": Call(_gaussians_at_batch_size, batch_size=number(16.0)),
    "batchnorm_kl": Call(_batchnorm_kl, layers=layers(), batch_size=number(16.0)),
    "moment_recorder": Call(_moment_recorder, layers=layers()),
    # Active learning and scores.
    "active_learner": Call(
        _active_learner,
        budget=whole(12, "a whole number from 1 to 60, the number of examples in the pool", (0, 61)),
        batch=whole(4, FROM_1),
        initial=accepted(3),
        rows_per_call=whole(2, FROM_1, none=True),
        candidates=whole(20, FROM_1, none=True),
        seed=seed(),
    ),
    "choose": Call(
        lambda count, seed: active.choose(active.bald, predictive(3), count, seed=seed), count=_count, seed=seed()
    ),
    "choose_at_random": Call(
        lambda count, seed: active.Random().choose(predictive(3), count, seed=seed), count=accepted(3), seed=seed()
    ),
    "choose_by_batch_bald": Call(
        _choose_by_batch_bald,
        count=_count,
        seed=seed(),
        configurations=whole(20, FROM_1),
        block_bytes=whole(4000, FROM_1),
    ),
    "choose_by_variance": Call(lambda count: active.greedy_variance_reduction(predictive(1), count).rows, count=_count),
    "expected_calibration_error": Call(
        lambda **options: [
            metrics.ece(predictive(3), LABELS, adaptive=adaptive, **options) for adaptive in (False, True)
        ],
        bins=whole(5),
        ignore_index=accepted(1),
    ),
    "predictive_log_likelihood": Call(
        lambda floor: metrics.pll(predictive(1), Y, floor=floor),
        floor=number(0.5, "a small positive variance in squared target units"),
    ),
}
