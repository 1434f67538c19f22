"""The contract of every argument in the tables `argument_*.py`.

Python and NumPy numbers are accepted alike and stored as Python numbers. Other values are refused before any work, by a
message with the argument, the requirement and the value.
"""

import copy
import dataclasses
import inspect

import argument_fits
import argument_functions
import argument_settings
import numpy as np
import pytest
import torch
from counted_networks import PASSES, TwoOutputs, X, Y, fitted, prepare
from torch import Tensor

import bayesnorm as bn
from bayesnorm import files

CALLS = argument_settings.CALLS | argument_fits.CALLS | argument_functions.CALLS
ARGUMENTS = [
    pytest.param(call, name, id=f"{title}-{name}")
    for title, call in CALLS.items()
    for name, argument in call.arguments.items()
    if argument.bad
]


def numpy_number(value, whole=np.int64, real=np.float32):
    """Return a number in NumPy's types, and anything else as it is."""
    if isinstance(value, tuple):
        return tuple(numpy_number(number, whole, real) for number in value)
    kinds = {int: whole, float: real}
    return kinds.get(type(value), lambda other: other)(value)


def assert_same(first, second):
    """Compare values, and types of numbers, down to the leaves."""
    assert type(first) is type(second)
    if isinstance(first, Tensor):
        torch.testing.assert_close(second, first, rtol=0, atol=0, equal_nan=True)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            assert_same(first[name], second[name])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif dataclasses.is_dataclass(first):
        assert first == second
        assert hash(first) == hash(second)
        assert repr(first) == repr(second)
        assert_same(vars(first), vars(second))
    else:
        assert first == second or first != first


@pytest.mark.parametrize("title", CALLS)
def test_numpy_numbers_give_what_python_numbers_give(title):
    assert_same(CALLS[title](lambda value: value), CALLS[title](numpy_number))


@pytest.mark.parametrize(
    ("whole", "real"), [(np.uint8, np.float16), (np.int32, np.float64), (np.uint64, np.longdouble)]
)
def test_other_numpy_types(whole, real):
    for title in ("MCBN", "StudentT", "mcbn_fit", "sample_classes", "at_batch_size", "training"):
        assert_same(CALLS[title](lambda v: v), CALLS[title](lambda v: numpy_number(v, whole, real)))


@pytest.mark.parametrize(("call", "name"), ARGUMENTS)
def test_other_values_are_refused_before_any_work(call, name):
    prepare()
    argument = call.arguments[name]
    for value in argument.bad:
        PASSES.clear()
        with pytest.raises(bn.BayesNormError) as raised:
            call(lambda good: good, **{name: value})
        assert str(raised.value) == argument.message(name, value)
        assert max(PASSES, default=0) <= 3, f"only a few rows go through the network before {value!r} is refused"
        assert len(PASSES) <= 6


OTHER_MESSAGES = [
    ("layers_of_a_fit", "layers", "3", "layers: '3' is not a batch-norm layer that runs. Use layers that run: "),
    ("layers_of_a_fit", "layers", np.True_, "layers must be names, a predicate, a whole number or None, got True."),
    ("layers_of_a_fit", "layers", 3, "layers=3, but the network has 2 batch-norm layers. Use layers=1 to 2, or "),
    ("output_of_a_fit", "output", 1.5, "output=1.5, but the network returns tuple with entries 0, 1. Choose one "),
    ("mcbn_fit", "batch_size", None, "batch_size=None uses that of a DataLoader, but train_data is tuple. Pass "),
    ("training", "batch_size", None, "batch_size is needed if data is a Tensor. Pass a whole number from 2."),
    ("Laplace", "scale", None, "scale must be positive numbers, got None."),
    ("active_learner", "initial", True, "initial must be a whole number from 1 to 12, the number of labels in the "),
    ("active_learner", "initial", 1.5, "initial has shape (). Pass at least one example."),
    ("active_learner", "initial", "3", "initial has dtype <U1 (str). Pass a tensor or an array of numbers."),
]


@pytest.mark.parametrize(("title", "name", "value", "message"), OTHER_MESSAGES)
def test_other_messages(title, name, value, message):
    prepare()
    PASSES.clear()
    with pytest.raises(bn.BayesNormError) as raised:
        CALLS[title](lambda good: good, **{name: value})
    assert str(raised.value).startswith(message)
    assert max(PASSES, default=0) <= 3


CHECKED_ELSEWHERE = {
    "MCBN": {"batch_size"},
    "GaussianBN": {"batch_size"},
    "StochasticBN": {"batch_size"},
    "DeepEnsemble": {"epochs", "batch_size", "learning_rate", "weight_decay"},
    "export": {"samples", "seed", "level", "group"},
}
"""Settings that are checked when they are used, which `argument_fits` has, and what `export` passes to `as_module`."""


def test_the_table_is_complete():
    """Every number that a method, an engine, a likelihood or a function of `bayesnorm` takes is in the table."""
    annotations = {"int", "float", "int | None", "float | None", "float | tuple[float, ...]"}
    results = (bn.Predictive, bn.Posterior, Exception)
    missing = {}
    for title, public in vars(bn).items():
        is_class = inspect.isclass(public)
        if title.startswith("_") or not (is_class or inspect.isfunction(public)):
            continue
        if is_class and (issubclass(public, results) or inspect.isabstract(public)):
            continue
        numbers = {name for name, p in inspect.signature(public).parameters.items() if p.annotation in annotations}
        described = CALLS[title].arguments.keys() if title in CALLS else set()
        missing[title] = numbers - described - CHECKED_ELSEWHERE.get(title, set())
    assert not {title: names for title, names in missing.items() if names}, "describe them in argument_*.py"


SAVED = {
    "MCBN": lambda n: bn.MCBN(batch_size=n(8), states=n(6), layers=n(1)),
    "GaussianBN": lambda n: bn.GaussianBN(batch_size=n(8), states=n(6), rank=n(2)),
    "DeepEnsemble": lambda n: bn.DeepEnsemble(members=n(2), method=bn.MCBN(n(8), n(6)), epochs=n(1)),
    "MNF": lambda n: bn.MNF(epochs=n(1), flows=n(1), hidden=n(4)),
    "MCDropout": lambda n: bn.MCDropout(p=n(0.25)),
}


@pytest.mark.parametrize("title", SAVED)
def test_files_hold_python_numbers(title, tmp_path):
    model, contents, means = TwoOutputs().eval(), [], []
    for convert in (lambda value: value, numpy_number):
        path = tmp_path / f"{len(contents)}.bayesnorm"
        likelihood = bn.StudentT(df=convert(4), axis=convert(1))
        options = {"output": convert(1), "seed": convert(3)}
        SAVED[title](convert).fit(copy.deepcopy(model), (X, Y), likelihood, **options).save(path)
        contents.append(files.read(path))
        means.append(bn.load(path, model).predict(X, seed=2).mean)
    assert_same(*contents)
    assert torch.equal(*means)


def test_an_effective_batch_size_may_be_a_fraction(tmp_path):
    fitted(1).at_batch_size(np.float32(1.5)).save(tmp_path / "net.bayesnorm")
    assert bn.load(tmp_path / "net.bayesnorm", fitted(1).model).batch_size == 1.5
