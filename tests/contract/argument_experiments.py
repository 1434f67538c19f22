"""Calls with numbers that only tables and experiments need: stacked networks, the papers' networks and their data."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from argument_kinds import FROM_1, LEAST_2, Call, accepted, number, seed, whole
from bayesnorm.stacked import (
    Stack,
    StackedEnsemble,
    StackedRows,
    fit_stacked,
    stacked_moments,
    stacked_statistics,
    train_stacked,
)
from counted_networks import X, Y

import bayesnorm as bn
from bayesnorm import metrics
from experiments.bench import Store, run_local
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.toy_regression import toy_regression


def _new_stack():
    return Stack.of([paper_mlp(3, hidden=(5, 4), seed=number) for number in (1, 2)])


@functools.cache
def stack():
    return _new_stack()


@functools.cache
def rows():
    return StackedRows.of(X, Y, [torch.arange(50), torch.arange(60)])


def _train_stacked(**options):
    trained = _new_stack()
    train_stacked(trained, rows(), validation=rows(), **options)
    return dict(trained.weights.tensors)


def _statistics(batch_size, states, seed):
    statistics = stacked_statistics(stack(), rows(), batch_size, states, seed)
    return [statistics.mean, statistics.batch_size]


def _calibrate_stacked(axis, group):
    posterior = fit_stacked(bn.MCBN(8, 4), stack(), rows(), bn.Gaussian([1, 1], axis=axis, missing=True))
    calibrated = bn.calibrate(posterior, rows(), rows().own_targets, groups=[0, group], refinements=2, samples=3)
    scores = metrics.crps(calibrated.predict(rows()), rows().own_targets, each=group)
    return [calibrated.likelihood.precision, scores]


def _run_local(**options):
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
        return run_local([], store, **options)


CALLS = {
    "train_stacked": Call(
        _train_stacked,
        epochs=accepted(2),
        batch_size=whole(16, "a whole number from 2 to 50, the number of rows of network 0", (1, 51)),
        learning_rate=number(0.25),
        evaluate_every=whole(1, FROM_1),
        patience=whole(1, FROM_1, none=True),
        seed=accepted(3),
    ),
    "stacked_statistics": Call(
        _statistics, batch_size=whole(8, LEAST_2, (1,)), states=whole(4, LEAST_2, (1,)), seed=accepted(3)
    ),
    "stacked_moments": Call(
        lambda **options: stacked_moments(stack(), rows(), **options).mean_std,
        batch_size=whole(8, LEAST_2, (1,)),
        seed=accepted(3),
        rows_seen=whole(50),
    ),
    "fit_stacked": Call(
        lambda seed: (
            fit_stacked(bn.MCBN(8, 4), stack(), rows(), bn.Gaussian(missing=True), seed=seed).predict(rows()).std
        ),
        seed=accepted(3),
    ),
    "calibrate_stacked": Call(_calibrate_stacked, axis=accepted(0), group=accepted(1)),
    "StackedEnsemble": Call(
        lambda members: StackedEnsemble.of(stack(), members, rows(), bn.Gaussian()).predict(X).std, members=accepted(2)
    ),
    "paper_mlp": Call(
        lambda inputs, width, **options: dict(paper_mlp(inputs, hidden=(width,), **options).state_dict()),
        inputs=accepted(3),
        width=accepted(4),
        eps=number(0.5, "a number from 0, such as 1e-10", (-1.0,)),
        seed=seed(),
    ),
    "paper_dropout_mlp": Call(
        lambda rate, seed: [paper_dropout_mlp(3, rate, seed=seed)[0].p],
        rate=number(0.5, "a probability from 0 to below 1", (-1.0, 1)),
        seed=seed(),
    ),
    "toy_regression": Call(lambda seed: toy_regression(seed), seed=seed()),
    "run_local": Call(
        _run_local,
        workers=whole(0, "a whole number from 0", (-1,), none=True),
        threads=whole(1, FROM_1),
    ),
}
