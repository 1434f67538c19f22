"""NumPy's integers are kept, written and shown as plain ones; what was refused still is."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

import bayesnorm as bn
from bayesnorm import active, files
from bayesnorm.methods import dropout_precision
from bayesnorm.theory import diagnose_each, weight_decay_prior
from bayesnorm.training import train
from experiments.bench import Store, Unit, run_local

from .whole_numbers import TwoOutputs, X, Y, assert_same, fitted, network

MADE = {
    "MCBN": lambda whole: bn.MCBN(batch_size=whole(8), states=whole(6), layers=whole(1)),
    "GaussianBN": lambda whole: bn.GaussianBN(batch_size=whole(8), states=whole(6), rank=whole(2)),
    "StochasticBN": lambda whole: bn.StochasticBN(batch_size=whole(8), states=whole(6)),
    "DeepEnsemble": lambda whole: bn.DeepEnsemble(members=whole(2), epochs=whole(3), batch_size=whole(8)),
    "BayesByBackprop": lambda whole: bn.BayesByBackprop(epochs=whole(2), batch_size=whole(8), kl_warmup=whole(1)),
    "MNF": lambda whole: bn.MNF(epochs=whole(2), flows=whole(0), auxiliary_flows=whole(0), hidden=whole(4)),
    "MonteCarlo": lambda whole: bn.MonteCarlo(samples=whole(4), chunk=whole(2), block_bytes=whole(10)),
    "SigmaPoints": lambda whole: bn.SigmaPoints(rank=whole(4), chunk=whole(2)),
    "Delta": lambda whole: bn.Delta(block_bytes=whole(10)),
    "Gaussian": lambda whole: bn.Gaussian(precision=whole(2), axis=whole(1)),
    "Laplace": lambda whole: bn.Laplace(scale=whole(2), axis=whole(1)),
    "StudentT": lambda whole: bn.StudentT(df=whole(3), axis=whole(1)),
    "Categorical": lambda whole: bn.Categorical(temperature=whole(2), ignore_index=whole(9)),
    "LogitNoise": lambda whole: bn.LogitNoise(samples=whole(8), seed=whole(2)),
    "MultiTask": lambda whole: bn.MultiTask({"a": (bn.Gaussian(), whole(2))}, axis=whole(-1)),
    "BatchBALD": lambda whole: active.BatchBALD(configurations=whole(9), block_bytes=whole(99)),
}


@pytest.mark.parametrize("name", MADE)
def test_frozen_settings_hold_plain_numbers(name):
    plain, given = MADE[name](int), MADE[name](np.int64)
    assert given == plain
    assert hash(given) == hash(plain)
    assert repr(given) == repr(plain), "plain numbers are shown without their type"
    assert_same(dataclasses.asdict(plain), dataclasses.asdict(given))


@pytest.mark.parametrize(
    "method",
    [
        lambda whole: bn.MCBN(batch_size=whole(8), states=whole(6), layers=whole(1)),
        lambda whole: bn.GaussianBN(batch_size=whole(8), states=whole(6), rank=whole(2)),
        lambda whole: bn.DeepEnsemble(members=whole(2), method=bn.MCBN(whole(8), whole(6)), epochs=whole(1)),
        lambda whole: bn.MNF(epochs=whole(1), flows=whole(1), hidden=whole(4)),
        lambda whole: bn.MCDropout(),
    ],
    ids=["MCBN", "GaussianBN", "DeepEnsemble", "MNF", "MCDropout"],
)
def test_saved_and_loaded(method, tmp_path):
    model, written, predicted = TwoOutputs().eval(), [], []
    for whole in (int, np.int64):
        likelihood = bn.StudentT(df=whole(4), axis=whole(1))
        posterior = method(whole).fit(copy.deepcopy(model), (X, Y), likelihood, output=whole(1), seed=whole(3))
        posterior.save(tmp_path / whole.__name__)
        written.append(files.read(tmp_path / whole.__name__))
        predicted.append(posterior.predict(X, seed=whole(2)).mean)
        assert torch.equal(bn.load(tmp_path / whole.__name__, model).predict(X, seed=2).mean, predicted[0])
    assert_same(*written)


def test_units_of_work_keep_their_keys(tmp_path):
    assert Unit("tables", "builtins:dict", {"size": 3}).key == "4844ad41780d6227858c2e783b0781d5"
    with pytest.raises(bn.BayesNormError, match=r"parameters.*got int64"):
        Unit("tables", "builtins:dict", {"size": np.int64(3)})
    with Store(tmp_path / "results.sqlite") as store:
        unit = Unit("tables", "builtins:dict", {"size": 3})
        assert run_local([unit], store, workers=np.int64(0), threads=np.int64(1)).finished == 1


REFUSING = {
    "states": lambda v: bn.MCBN(states=v),
    "rank": lambda v: bn.SigmaPoints(rank=v),
    "samples": lambda v: bn.MonteCarlo(samples=v),
    "block_bytes": lambda v: bn.Delta(block_bytes=v),
    "members": lambda v: bn.DeepEnsemble(members=v),
    "epochs": lambda v: bn.BayesByBackprop(epochs=v),
    "kl_warmup": lambda v: bn.BayesByBackprop(kl_warmup=v),
    "hidden": lambda v: bn.MNF(hidden=v),
    "seed": lambda v: bn.MCBN(batch_size=8).fit(network(), X, seed=v),
    "seed of a prediction": lambda v: fitted().predict(X, seed=v),
    "n": lambda v: fitted().sample(v),
    "n of a predictive": lambda v: fitted().predict(X).sample(v),
    "batch_size": lambda v: fitted().at_batch_size(v),
    "epochs of train": lambda v: train(network(), X, Y, loss=mse_loss, epochs=v, batch_size=8),
    "evaluate_every": lambda v: train(network(), X, Y, loss=mse_loss, epochs=1, batch_size=8, evaluate_every=v),
    "batch_size of train": lambda v: train(network(), X, Y, loss=mse_loss, epochs=1, batch_size=v),
    "batch_sizes": lambda v: bn.diagnose(network(), X, v),
    "batch_sizes listed": lambda v: bn.diagnose(network(), X, [8, v]),
    "batches": lambda v: bn.diagnose(network(), X, 8, batches=v),
    "every": lambda v: diagnose_each(X, 8, every=v),
    "rows": lambda v: weight_decay_prior(v, 1.0, 1.0),
    "rows of dropout": lambda v: dropout_precision(1.0, 0.9, v, 0.1),
    "axis": lambda v: bn.Gaussian(axis=v),
    "axis of joined": lambda v: bn.joined_outputs(TwoOutputs(), [0, 1], axis=v),
    "samples of noise": lambda v: bn.LogitNoise(samples=v),
    "budget": lambda v: active.ActiveLearner(X, print, print, active.bald, budget=v),
    "count": lambda v: active.choose(active.bald, fitted(3).predict(X), v),
    "threads": lambda v: run_local([], None, threads=v),
}
NONE_IS_FINE = {
    "batch_size of a method": lambda v: bn.MCBN(batch_size=v).fit(network(), X),
    "rank of a Gaussian": lambda v: bn.GaussianBN(rank=v),
    "chunk": lambda v: bn.MonteCarlo(chunk=v),
    "layers": lambda v: bn.MCBN(batch_size=8, layers=v).fit(network(), X),
    "ignore_index": lambda v: bn.Categorical(ignore_index=v),
    "noises": lambda v: bn.with_noise_head(network(), noises=v),
    "initial": lambda v: active.ActiveLearner(X, print, print, active.bald, budget=9, initial=v),
    "workers": lambda v: run_local([], None, workers=v),
}


def refused(name, value):
    with pytest.raises(bn.BayesNormError, match=rf"^{name.split()[0]}( must be |=|: | has | is needed )"):
        (REFUSING | NONE_IS_FINE)[name](value)


@pytest.mark.parametrize("value", [True, "3", np.True_], ids=repr)
@pytest.mark.parametrize("name", [*REFUSING, *NONE_IS_FINE])
def test_others_are_still_refused(name, value):
    refused(name, value)


@pytest.mark.parametrize("name", REFUSING)
def test_none_is_still_refused(name):
    refused(name, None)


@pytest.mark.parametrize("name", [name for name in (*REFUSING, *NONE_IS_FINE) if name != "batch_size"])
def test_fractions_are_still_refused(name):
    refused(name, 1.5)


def test_an_effective_batch_size_may_still_be_a_fraction():
    assert fitted().at_batch_size(1.5).batch_size == 1.5
