"""Networks that make no stack, trainings that cannot be, and questions that a stack cannot answer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bayesnorm.errors import BayesNormError, InputError, NetworkError
from bayesnorm.nets import paper_mlp
from bayesnorm.stacked import Stack, StackedRows, train_stacked

from .stacked_networks import INPUTS, X, Y, dropout, global_state


def network(**options):
    return paper_mlp(**{"in_features": INPUTS, "hidden": (5,), **options})


BAD_NETWORKS = {
    "none": ([], "networks: is empty"),
    "no sequence": ([nn.Linear(2, 1)], "networks: entry 0 is Linear; an nn.Sequential"),
    "another width": ([network(), network(hidden=(6,))], "entry 1 has Dense.*outputs=6.* where entry 0 has Dense"),
    "another depth": ([network(), network(hidden=(5, 5))], "entry 1 has 7 layers and entry 0 has 4"),
    "another eps": ([network(), network(eps=1e-5)], "entry 1 has Norm.*eps=1e-05"),
    "a convolution": ([nn.Sequential(nn.Conv1d(1, 1, 1))], "layer '0' of entry 0 is Conv1d; nn.Linear"),
    "softmax": ([nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1))], "layer '1' of entry 0 is Softmax"),
    "no running statistics": (
        [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))],
        "batch norm with weights, running statistics",
    ),
    "frozen": ([network().requires_grad_(False)], "require no gradient"),
    "half": ([network().half()], "are torch.float16; torch.float32 or"),
    "two dtypes": ([network(), network().double()], "bring all to one"),
    "the same twice": ([shared := network(), shared], "share weights with others"),
    "widths that do not fit": ([nn.Sequential(nn.Linear(2, 4), nn.Linear(5, 1))], "'1' takes 5 numbers .* gets 4"),
    "one channel for all": (
        [nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.BatchNorm1d(1), nn.Linear(4, 1))],
        "layer '2' takes 1 numbers per row and gets 4",
    ),
    "no weights": ([nn.Sequential(nn.ReLU())], "hold no nn.Linear"),
}


@pytest.mark.parametrize("case", BAD_NETWORKS)
def test_networks_that_make_no_stack(case):
    networks, message = BAD_NETWORKS[case]
    with pytest.raises(NetworkError, match=message):
        Stack.of(networks)


BAD_TRAINING = {
    "rows": ({"rows": (X, Y)}, r"rows: tuple was given; StackedRows.of"),
    "other networks": ({"rows": StackedRows.of(X, Y, networks=3)}, "are for 3 networks of 4 inputs, but .* 2 of 4"),
    "other inputs": ({"rows": StackedRows.of(X[:, :3], Y, networks=2)}, "2 networks of 3 inputs"),
    "no targets": ({"rows": StackedRows.of(X, networks=2)}, "rows: hold no targets"),
    "two targets": ({"rows": StackedRows.of(X, X[:, :2], networks=2)}, r"shape \(40, 2\) .* 1 real outputs"),
    "batch": ({"batch_size": 41}, "batch_size: 41 was given, and network 0 has 40 rows; a whole number from 2 to 40"),
    "one row": ({"batch_size": 1}, "batch_size: 1 was given"),
    "epochs": ({"epochs": 0}, "epochs: 0 was given; a whole number"),
    "epochs for others": ({"epochs": [1, 2, 3]}, "epochs: 3 were given for 2 networks; one, or one for each"),
    "no epoch of one": ({"epochs": [3, 0]}, "epochs: 0 was given; a whole number from 1, or one for each"),
    "half an epoch": ({"epochs": torch.tensor([3.0, 2.5])}, "epochs: 3.0 was given; a whole number"),
    "a tensor for epochs": ({"epochs": torch.tensor(3)}, r"epochs: tensor\(3\) was given; a whole number"),
    "words for epochs": ({"epochs": "ab"}, "epochs: 'a' was given; a whole number"),
    "decays": ({"weight_decay": [0.1] * 3}, r"weight_decay: has shape \(3,\) for 2 networks"),
    "a decay": ({"weight_decay": [0.1, -1.0]}, "numbers from 0"),
    "no decay": ({"weight_decay": None}, "weight_decay: None was given; numbers from 0"),
    "decays that are none": ({"weight_decay": ["a", "b"]}, r"weight_decay: \['a', 'b'\] was given"),
    "groups that are none": ({"groups": "ab"}, "groups: 'ab' was given; a whole number for each of 2"),
    "no scores": ({"evaluate": lambda *_: {}}, "evaluate: gave no score; a score for each"),
    "no function": ({"loss": "mse"}, "loss: str was given; a function"),
    "no function for scores": ({"evaluate": 1.0}, "evaluate: float was given; a function"),
    "half a seed": ({"seed": [1.5, 2.5]}, "seed: 1.5 was given"),
    "words for seeds": ({"seed": "ab"}, "seed: 'a' was given"),
    "a tensor for a seed": ({"seed": torch.tensor(3)}, r"seed: tensor\(3\) was given"),
    "seeds": ({"seed": [1]}, "seed: 1 were given for 2 networks"),
    "groups": ({"groups": [1, 2, 3]}, r"groups: has shape \(3,\)"),
    "rate": ({"learning_rate": 0.0}, "learning_rate: 0.0 was given"),
    "patience alone": ({"patience": 2}, "patience: was given, but nothing to score"),
    "two scores": ({"validation": StackedRows.of(X, Y, networks=2), "evaluate": len}, "evaluate: was given beside"),
    "no score for each": ({"evaluate": lambda *_: torch.zeros(3)}, r"evaluate: gave \(3,\) for 2 networks"),
    "no tensor": ({"evaluate": lambda *_: 1.0}, "evaluate: gave float for 2 networks"),
    "no number": ({"evaluate": lambda *_: torch.full((2,), math.nan)}, r"gave NaN in epoch 1 for networks \[0, 1\]"),
    "loss": ({"loss": lambda f, y: (f - y).square()}, r"loss: gave \(2, 8, 1\) for outputs .* \(2, 8\), would work"),
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
    with pytest.raises(InputError, match=r"x: has shape \(3, 2, 4\); \(n, 4\) or \(2, n, 4\)"):
        stack.predict(torch.zeros(3, 2, INPUTS))
    with pytest.raises(InputError, match="batch_size: 40 of only 40 training rows"):
        stack.batch_statistics(rows, 40)
    with pytest.raises(InputError, match="states: 1 was given"):
        stack.batch_statistics(rows, 8, 1)
    with pytest.raises(NetworkError, match="no batch norm"):
        other.batch_statistics(StackedRows.of(X, networks=1), 8)
    with pytest.raises(NetworkError, match=r"no nn\.Dropout"):
        stack.dropout_masks()
    statistics = stack.batch_statistics(rows, 8, 4)
    with pytest.raises(InputError, match="draws: are for 2 other networks"):
        other.predict_under(statistics, X)
    with pytest.raises(InputError, match="draws: are for 1 other networks"):
        stack.predict_under(other.dropout_masks(2), X)
    with pytest.raises(BayesNormError, match="center: 'mean' was given"):
        statistics.about("mean")
    with pytest.raises(BayesNormError, match=r"batch_size: .*one for each of 2 networks"):
        statistics.at_batch_size([1.0, 2.0, 3.0])
    with pytest.raises(BayesNormError, match="batch_size: 'large' was given; a positive number"):
        statistics.at_batch_size("large")
    with pytest.raises(InputError, match=r"f: has shape \(2, 40\); \(2, 40, 1\), as targets have"):
        rows.rmse(torch.zeros(2, 40))
    with pytest.raises(NetworkError, match="1 were given; 2 of the stack's shape"):
        stack.write_back([network()])
