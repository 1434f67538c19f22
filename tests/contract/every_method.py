"""Methods found by inspection, made small, and what is compared of their predictions."""

from __future__ import annotations

import inspect

import torch

from bayesnorm import methods

SETTINGS = {"batch_size": 8, "states": 24, "members": 3, "epochs": 3}
"""Small sizes, given to those methods that take them."""

TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-10, "atol": 1e-11}}
"""Rounding: a handful of matrix products and a division, some tens of the dtype's epsilon at outputs of order 1."""

METHODS = [
    cls
    for name, cls in inspect.getmembers(methods, inspect.isclass)
    if not name.startswith("_") and callable(getattr(cls, "fit", None))
]


def make(cls):
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in SETTINGS.items() if name in known})


def fit(cls, task, seed=0):
    return make(cls).fit(task.model, (task.x, task.y), task.likelihood, seed=seed)


def numbers(predictive, new_y):
    """Everything a predictive says that is a tensor."""
    shown = {"mean": predictive.mean, "epistemic": predictive.epistemic, "aleatoric": predictive.aleatoric}
    shown |= {"variance": predictive.variance, "std": predictive.std, "log_prob": predictive.log_prob(new_y)}
    for name in ("probs", "entropy", "expected_entropy", "mutual_information", "label", "confidence"):
        if hasattr(predictive, name):
            shown[name] = getattr(predictive, name)
    return shown


def assert_same(first, second, exact=True):
    assert first.keys() == second.keys()
    for name, value in first.items():
        if exact or not value.is_floating_point():
            assert torch.equal(value, second[name]), name
        else:
            torch.testing.assert_close(value, second[name], **TOLERANCE[value.dtype], msg=name)
