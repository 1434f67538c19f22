"""Posteriors that the contract's tests share."""

import pytest
import torch
from every_method import fit


@pytest.fixture(scope="session")
def _fits():
    return {}


@pytest.fixture
def fitted(_fits, make_task):
    """`fitted(method, task)` is a method's posterior on that task, fitted once in a run, on a network of its own.

    Posteriors are immutable, so tests share them; a test that needs the network that `fit` saw, or changes it, fits
    its own.
    """

    def shared(method, task, dtype=torch.float32):
        key = method, task.name, dtype
        if key not in _fits:
            _fits[key] = fit(method, make_task(task.name).to(dtype))
        return _fits[key]

    return shared
