"""Methods found by inspection, made small, their posteriors fitted once, and what is compared of predictions."""

import dataclasses
import inspect
import typing

import pytest
import torch

from bayesnorm import methods

SETTINGS = {"batch_size": 8, "states": 24, "members": 3, "epochs": 3}
"""Small sizes, given to those methods that take them."""

TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-10, "atol": 1e-11}}
"""Rounding: a handful of matrix products and a division, some tens of the dtype's epsilon at outputs of order 1."""


def methods_in(package):
    """Return the classes of a module that have a `fit` and are no bases of others alone."""
    return [
        cls
        for name, cls in inspect.getmembers(package, inspect.isclass)
        if not (name.startswith("_") or inspect.isabstract(cls)) and callable(getattr(cls, "fit", None))
    ]


METHODS = methods_in(methods)


def variants(cls):
    """Return small methods of a class, one with correlations too where it can have them."""
    names = inspect.signature(cls).parameters
    method = cls(**{name: value for name, value in SETTINGS.items() if name in names})
    return [method, dataclasses.replace(method, rank=12)] if "rank" in names else [method]


VARIANTS = [method for cls in METHODS for method in variants(cls)]


def fits_coordinates(method):
    """Say whether a method's `fit` promises a posterior that every engine takes."""
    return hasattr(typing.get_type_hints(method.fit)["return"], "directions")


def name_of(method):
    return type(method).__name__ + ("-correlated" if getattr(method, "rank", 0) else "")


each_method = pytest.mark.parametrize("method", VARIANTS, ids=name_of)

each_network = pytest.mark.parametrize("task", ["regression", "per_pixel"], indirect=True)
"""The two kinds of networks, dense and convolutional, for claims that the likelihood has no part in."""

each_likelihood = pytest.mark.parametrize("task", ["regression", "classification"], indirect=True)
"""The two kinds of targets, for claims that the network has no part in."""


def fit(method, task, seed=0):
    return method.fit(task.model, (task.x, task.y), task.likelihood, seed=seed)


def numbers(predictive, new_y):
    """Return everything that a predictive says and that is a tensor."""
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
