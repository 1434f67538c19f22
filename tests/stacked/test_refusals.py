"""Networks that make no stack, trainings that cannot be, and questions that a stack cannot answer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import BayesNormError, InputError, NetworkError
from bayesnorm.stacked import (
    Stack,
    StackedEnsemble,
    StackedExecutable,
    StackedRows,
    by_own_rows,
    fit_stacked,
    stacked_outputs,
    stacked_point,
    stacked_statistics,
    train_stacked,
)
from experiments.networks import paper_mlp

from .stacked_networks import INPUTS, X, Y, dropout, global_state


def network(**options):
    return paper_mlp(**{"in_features": INPUTS, "hidden": (5,), **options})


BAD_NETWORKS = {
    "none": ([], "networks is empty"),
    "no sequence": ([nn.Linear(2, 1)], "networks: entry 0 must be an nn.Sequential, got Linear"),
    "another width": ([network(), network(hidden=(6,))], "entry 1 has Dense.*outputs=6.* where entry 0 has Dense"),
    "another depth": ([network(), network(hidden=(5, 5))], "entry 1 has 7 layers, but entry 0 has 4"),
    "another eps": ([network(), network(eps=1e-5)], "entry 1 has Norm.*eps=1e-05"),
    "a convolution": ([nn.Sequential(nn.Conv1d(1, 1, 1))], "layer '0' of entry 0 is Conv1d. Use nn.Linear"),
    "softmax": ([nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1))], "layer '1' of entry 0 is Softmax"),
    "no running statistics": (
        [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))],
        "batch norm with weights, running statistics",
    ),
    "frozen": ([network().requires_grad_(False)], "require no gradient"),
    "half": ([network().half()], "must be torch.float32 or .*got torch.float16"),
    "two dtypes": ([network(), network().double()], "Convert all of them to one"),
    "the same twice": ([shared := network(), shared], "share weights with others"),
    "widths that do not fit": ([nn.Sequential(nn.Linear(2, 4), nn.Linear(5, 1))], "'1' expects 5 numbers .* gets 4"),
    "one channel for all": (
        [nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.BatchNorm1d(1), nn.Linear(4, 1))],
        "layer '2' expects 1 numbers per row, but gets 4",
    ),
    "no weights": ([nn.Sequential(nn.ReLU())], "have no nn.Linear"),
}


@pytest.mark.parametrize("case", BAD_NETWORKS)
def test_networks_that_make_no_stack(case):
    networks, message = BAD_NETWORKS[case]
    with pytest.raises(NetworkError, match=message):
        Stack.of(networks)


BAD_TRAINING = {
    "rows": ({"rows": (X, Y)}, r"rows must be .*StackedRows.of.*, got tuple"),
    "other networks": ({"rows": StackedRows.of(X, Y, networks=3)}, "are for 3 networks with 4 inputs, but .* 2 with 4"),
    "other inputs": ({"rows": StackedRows.of(X[:, :3], Y, networks=2)}, "2 networks with 3 inputs"),
    "no targets": ({"rows": StackedRows.of(X, networks=2)}, "rows have no targets"),
    "two targets": ({"rows": StackedRows.of(X, X[:, :2], networks=2)}, r"shape \(40, 2\) .* 1 real outputs"),
    "batch": (
        {"batch_size": 41},
        "batch_size must be a whole number from 2 to 40, the number of rows of network 0, got 41",
    ),
    "one row": ({"batch_size": 1}, "batch_size must be .*, got 1"),
    "epochs": ({"epochs": 0}, "epochs must be .*a whole number.*, got 0"),
    "epochs for others": (
        {"epochs": [1, 2, 3]},
        "epochs has 3 entries for 2 networks. Pass one number, or one per network",
    ),
    "no epoch of one": ({"epochs": [3, 0]}, "epochs must be .*a whole number from 1, or one for each.*, got 0"),
    "half an epoch": ({"epochs": torch.tensor([3.0, 2.5])}, "epochs must be .*a whole number.*, got 3.0"),
    "a tensor for epochs": ({"epochs": torch.tensor(3)}, r"epochs must be .*a whole number.*, got tensor\(3\)"),
    "words for epochs": ({"epochs": "ab"}, "epochs must be .*a whole number.*, got 'a'"),
    "decays": ({"weight_decay": [0.1] * 3}, r"weight_decay has shape \(3,\) for 2 networks"),
    "a decay": ({"weight_decay": [0.1, -1.0]}, "numbers from 0"),
    "no decay": ({"weight_decay": None}, "weight_decay must be .*numbers from 0.*, got None"),
    "decays that are none": ({"weight_decay": ["a", "b"]}, r"weight_decay must be .*, got \['a', 'b'\]"),
    "groups that are none": ({"groups": "ab"}, "groups must be .*a whole number for each of 2.*, got 'ab'"),
    "no scores": ({"evaluate": lambda *_: {}}, "evaluate returned no score. It must return one score per network"),
    "no function": ({"loss": "mse"}, "loss must be .*a function.*, got str"),
    "no function for scores": ({"evaluate": 1.0}, "evaluate must be .*a function.*, got float"),
    "half a seed": ({"seed": [1.5, 2.5]}, "seed must be .*, got 1.5"),
    "words for seeds": ({"seed": "ab"}, "seed must be .*, got 'a'"),
    "a tensor for a seed": ({"seed": torch.tensor(3)}, r"seed must be .*, got tensor\(3\)"),
    "seeds": ({"seed": [1]}, "seed has 1 entries for 2 networks"),
    "groups": ({"groups": [1, 2, 3]}, r"groups must be .*, got shape \(3,\)"),
    "rate": ({"learning_rate": 0.0}, "learning_rate must be .*, got 0.0"),
    "patience alone": ({"patience": 2}, "patience needs a score"),
    "two scores": (
        {"validation": StackedRows.of(X, Y, networks=2), "evaluate": len},
        "evaluate and validation were both given",
    ),
    "no score for each": ({"evaluate": lambda *_: torch.zeros(3)}, r"evaluate returned \(3,\) for 2 networks"),
    "no tensor": ({"evaluate": lambda *_: 1.0}, "evaluate returned float for 2 networks"),
    "no number": (
        {"evaluate": lambda *_: torch.full((2,), math.nan)},
        r"returned NaN in epoch 1 for networks \[0, 1\]",
    ),
    "loss": (
        {"loss": lambda f, y: (f - y).square()},
        r"loss returned \(2, 8, 1\) for outputs .* one number per row, \(2, 8\)",
    ),
}


@pytest.mark.parametrize("case", BAD_TRAINING)
def test_bad_arguments(case):
    options, message = BAD_TRAINING[case]
    stack = Stack.of([network(seed=0), network(seed=1)])
    arguments = {"rows": StackedRows.of(X, Y, networks=2), "epochs": 1, "batch_size": 8, **options}
    before = global_state()
    with pytest.raises(BayesNormError, match=message):
        train_stacked(stack, **arguments)
    assert global_state() == before


def test_bad_questions():
    stack, rows = Stack.of([network(seed=0), network(seed=1)]), StackedRows.of(X, Y, networks=2)
    other = Stack.of([dropout(0.1, 0)])
    with pytest.raises(InputError, match=r"x has shape \(3, 2, 4\). Pass \(n, 4\) or \(2, n, 4\)"):
        stacked_outputs(stack, torch.zeros(3, 2, INPUTS))
    with pytest.raises(InputError, match="batch_size=40, but a network has only 40 training rows"):
        stacked_statistics(stack, rows, 40, 8)
    with pytest.raises(InputError, match=r"states must be .*, got 1"):
        stacked_statistics(stack, rows, 8, 1)
    with pytest.raises(NetworkError, match="no batch norm"):
        stacked_statistics(other, StackedRows.of(X, networks=1), 8, 4)
    with pytest.raises(NetworkError, match=r"no nn\.Dropout"):
        fit_stacked(bn.MCDropout(), stack, rows)


def test_bad_methods():
    stack, rows = Stack.of([network(seed=0), network(seed=1)]), StackedRows.of(X, Y, networks=2)
    dropped = Stack.of([dropout(0.1, 0), dropout(0.2, 1)])
    for method in (bn.MCBN(), bn.MCBN(8, layers=1), bn.MCBN(8, layers=["1"]), bn.GaussianBN(8, layers=1, rank=2)):
        with pytest.raises(BayesNormError, match=r"method must have a batch_size and layers=None for a stack"):
            fit_stacked(method, stack, rows)
    with pytest.raises(BayesNormError, match=r"method must have p=None .*got MCDropout\(p=0\.3"):
        fit_stacked(bn.MCDropout(p=0.3), dropped, rows)
    for method in (bn.DeepEnsemble(), bn.MCBN, None):
        with pytest.raises(BayesNormError, match=r"method must be MCBN\(batch_size=32\), GaussianBN or MCDropout\(\)"):
            fit_stacked(method, stack, rows)
    for method, own in ((bn.MCBN(8), stack), (bn.MCDropout(), dropped)):
        with pytest.raises(
            InputError, match="rows: these rows are for 3 networks with 4 inputs, but the stack has 2 with 4"
        ):
            fit_stacked(method, own, StackedRows.of(X, Y, networks=3))
        with pytest.raises(InputError, match=r"rows must be .*StackedRows.*, got tuple"):
            fit_stacked(method, own, (X, Y))
    with pytest.raises(BayesNormError, match=r"likelihood must be .*, got 1\.0"):
        fit_stacked(bn.MCBN(8), stack, rows, 1.0)
    several = Stack.of([network(out_features=3, seed=0)])
    with pytest.raises(BayesNormError, match=r"likelihood=None, but .* 3 outputs. Pass Categorical\(\)"):
        fit_stacked(bn.MCBN(8), several, StackedRows.of(X, networks=1))


def test_bad_changes_of_a_posterior(tmp_path):
    stack, rows = Stack.of([network(seed=0), network(seed=1)]), StackedRows.of(X, Y, networks=2)
    posterior = fit_stacked(bn.MCBN(8, states=4), stack, rows)
    with pytest.raises(BayesNormError, match=r"batch_size must be .*one for each of 2 networks"):
        posterior.at_batch_size([1.0, 2.0, 3.0])
    for bad in ("large", 0, [1.0, -2.0], math.nan, None, torch.ones(2, 2)):
        with pytest.raises(BayesNormError, match=r"(?s)batch_size must be a positive number, or one for each .*, got"):
            posterior.at_batch_size(bad)
    dropped = Stack.of([dropout(0.1, 0), dropout(0.2, 1)])
    for each in (
        posterior,
        by_own_rows(posterior),
        fit_stacked(bn.MCDropout(), dropped, rows),
        stacked_point(stack, rows, bn.Gaussian()),
        StackedEnsemble.of(stack, 2, rows, bn.Gaussian()),
    ):
        with pytest.raises(BayesNormError, match=r"save: a stack cannot be saved.* stack\.network\(i\)"):
            each.save(tmp_path / "stack.bayesnorm")
        with pytest.raises(BayesNormError, match=r"model: a stack has several networks. Use stack\.network\(i\)"):
            each.model  # noqa: B018
    assert not [*tmp_path.iterdir()]
    for changed in (lambda: posterior.at_layers(1), posterior.compile):
        with pytest.raises(BayesNormError, match="model: a stack has several networks"):
            changed()
    for members in (0, 3, 2.5):
        with pytest.raises(BayesNormError, match=f"members(=| must be .*, got ){members}"):
            StackedEnsemble.of(stack, members, rows, bn.Gaussian())


def test_states_of_another_stack():
    rows = StackedRows.of(X, Y, networks=2)
    stack = Stack.of([network(seed=0), network(seed=1)])
    states = fit_stacked(bn.MCBN(8, states=4), stack, rows).sample(3)
    masks = fit_stacked(bn.MCDropout(), Stack.of([dropout(0.1, 0), dropout(0.2, 1)]), rows).sample(3)
    alone = bn.MCBN(8, states=4).fit(stack.network(0), X).sample(3)
    fewer, wider = Stack.of([network(seed=0)]), Stack.of([network(hidden=(6,), seed=i) for i in range(2)])
    one_mask = bn.MCDropout().fit(dropout(0.1, 0), likelihood=bn.Gaussian()).sample(3)
    cases = [(fewer, states), (wider, states), (stack, masks), (stack, alone), (stack, {}), (wider, one_mask)]
    cases.append((Stack.of([dropout(0.1, 0)]), one_mask))
    for own, given in cases:
        executable = StackedExecutable(own)
        for ask in (executable.run, executable.moments):
            with pytest.raises(InputError, match=r"states: .*samples of a posterior that was fitted on this stack"):
                ask(given, X)


@pytest.mark.parametrize("engine", [bn.Delta(), bn.SigmaPoints()])
def test_engines_that_need_one_network(engine):
    rows = StackedRows.of(X, Y, networks=2)
    stack, dropped = Stack.of([network(seed=i) for i in range(2)]), Stack.of([dropout(0.1, i) for i in range(2)])
    fitted = fit_stacked(bn.MCBN(8, states=4), stack, rows)
    others = fit_stacked(bn.MCDropout(), dropped, rows), stacked_point(stack, rows, bn.Gaussian())
    for posterior in (fitted, by_own_rows(fitted)):
        with pytest.raises(
            BayesNormError, match=r"a posterior over one network.*a stack .*MonteCarlo\(\).*stack\.network\(i\)"
        ):
            posterior.predict(rows, engine)
    for posterior in others:
        with pytest.raises(BayesNormError, match=r"needs a posterior over batch-norm statistics.*MonteCarlo\(\)"):
            posterior.predict(rows, engine)


def test_as_many_noises_as_networks():
    rows = StackedRows.of(X, Y, networks=3)
    stack = Stack.of([network(seed=i) for i in range(3)])
    posterior = fit_stacked(bn.MCBN(8, states=4), stack, rows, bn.Gaussian(precision=[1, 2], axis=0))
    message = (
        r"precision has 2 numbers, but the outputs have shape \(3, 40, 1\). Pass one number, or one per entry of axis 0"
    )
    with pytest.raises(InputError, match=message):
        posterior.predict(rows)
    mean, variance = bn.MonteCarlo(4).moments(posterior, rows)
    with pytest.raises(InputError, match=message):
        posterior.likelihood.gaussian_predictive(mean, variance)
    good = posterior.with_likelihood(bn.Gaussian(precision=[1, 2, 4], axis=0)).predict(rows)
    assert good.aleatoric[:, 0, 0].tolist() == pytest.approx([1.0, 0.5, 0.25])
    for likelihood in (bn.Laplace(scale=[1, 2], axis=0), bn.StudentT(scale=[1, 2], axis=0)):
        with pytest.raises(InputError, match=r"scale has 2 numbers, but the outputs have shape \(3, 40, 1\)"):
            posterior.with_likelihood(likelihood).predict(rows)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bn.HeteroscedasticGaussian(axis=0),
        lambda: bn.HeteroscedasticLaplace(axis=0),
        lambda: bn.MultiTask({"a": bn.Gaussian()}, axis=0),
    ],
)
def test_noise_of_each_network_is_for_noise_that_is_known(make):
    with pytest.raises(BayesNormError, match=r"axis must be .*-1.*, got 0"):
        make()
