"""Gaussian noise: a precision is an inverse variance, in the targets' units."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bayesnorm as bn
from bayesnorm.likelihoods import likelihood_from


def test_a_precision_is_an_inverse_variance():
    f = torch.randn(5, 4, 1, dtype=torch.float64)
    predictive = bn.Gaussian(precision=25.0).predictive(f)
    torch.testing.assert_close(predictive.scale, torch.full_like(f, 0.2))
    torch.testing.assert_close(predictive.aleatoric, torch.full((4, 1), 0.04, dtype=torch.float64))


def test_one_precision_per_output():
    f = torch.randn(5, 4, 3, dtype=torch.float64)
    predictive = bn.Gaussian(precision=(1.0, 4.0, 100.0)).predictive(f)
    expected = torch.tensor([1.0, 0.25, 0.01], dtype=torch.float64).expand(4, 3)
    torch.testing.assert_close(predictive.aleatoric, expected)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(2, 2.0), (2.5, 2.5), ([1, 2], (1.0, 2.0)), ((3.0,), (3.0,)), (torch.tensor([1.0, 2.0]), (1.0, 2.0))],
)
def test_precisions_are_kept_as_plain_numbers(given, kept):
    likelihood = bn.Gaussian(given)
    assert likelihood.precision == kept
    assert hash(likelihood) == hash(bn.Gaussian(kept))


def test_a_tensor_of_one_number():
    assert bn.Gaussian(torch.tensor(4.0)).precision == 4.0


@pytest.mark.parametrize("precision", [0, -1.0, float("nan"), float("inf"), "high", None, (), (1.0, 0.0), (1.0, "x")])
def test_bad_precisions(precision):
    with pytest.raises(bn.BayesNormError, match=r"^precision "):
        bn.Gaussian(precision)


@pytest.mark.parametrize("shape", [(5, 4, 2), (5, 4)])
def test_a_precision_for_other_outputs(shape):
    with pytest.raises(bn.BayesNormError, match=r"precision has 3 numbers, but the outputs have shape \(4"):
        bn.Gaussian((1.0, 2.0, 3.0)).predictive(torch.zeros(shape))


@pytest.mark.parametrize("likelihood", [bn.Gaussian(), bn.Gaussian(0.3), bn.Gaussian((1.0, 2.0)), bn.Categorical(2.5)])
def test_a_likelihood_is_what_its_config_says(likelihood):
    import json

    assert likelihood_from(json.loads(json.dumps(likelihood.config()))) == likelihood


def test_likelihoods_are_frozen():
    with pytest.raises(AttributeError):
        bn.Gaussian().precision = 3.0


def test_precisions_of_other_kinds():
    for several in (np.array([1.0, 2.0]), torch.tensor([1.0, 2.0], requires_grad=True), [1, 2]):
        assert bn.Gaussian(several) == bn.Gaussian((1.0, 2.0))
    assert bn.Gaussian(np.float32(2)) == bn.Gaussian(np.array(2)) == bn.Gaussian(2.0)
    assert bn.Gaussian("12") == bn.Gaussian(12.0), "not 1 and 2"
