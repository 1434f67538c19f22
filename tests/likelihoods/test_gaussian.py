"""Gaussian noise: a precision is an inverse variance, in the targets' units."""

import numpy as np
import pytest
import torch

import bayesnorm as bn


def test_one_precision_per_output():
    f = torch.randn(5, 4, 3, dtype=torch.float64)
    predictive = bn.Gaussian(precision=(1.0, 4.0, 100.0)).predictive(f)
    expected = torch.tensor([1.0, 0.25, 0.01], dtype=torch.float64).expand(4, 3)
    torch.testing.assert_close(predictive.aleatoric, expected)


def test_bad_precisions():
    for precision in ("high", None, (), (1.0, 0.0), (1.0, "x")):
        with pytest.raises(bn.BayesNormError, match=r"^precision "):
            bn.Gaussian(precision)


def test_a_precision_for_other_outputs():
    for shape in ((5, 4, 2), (5, 4)):
        with pytest.raises(bn.BayesNormError, match=r"precision has 3 numbers, but the outputs have shape \(4"):
            bn.Gaussian((1.0, 2.0, 3.0)).predictive(torch.zeros(shape))


def test_precisions_are_kept_as_plain_numbers():
    several = ([1, 2], np.array([1.0, 2.0]), torch.tensor([1.0, 2.0], requires_grad=True))
    for precision in several:
        assert bn.Gaussian(precision).precision == (1.0, 2.0)
        assert hash(bn.Gaussian(precision)) == hash(bn.Gaussian((1.0, 2.0)))
    for precision in (2, np.float32(2), np.array(2), torch.tensor(2.0)):
        assert bn.Gaussian(precision).precision == 2.0
    assert bn.Gaussian((3.0,)).precision == (3.0,)
    assert bn.Gaussian("12") == bn.Gaussian(12.0), "not 1 and 2"
