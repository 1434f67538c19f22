"""The log density that samples expect of a target, each on its own: against SciPy, and in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import laplace, norm, t as student_t

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.predictive import GaussianPredictive


def numbers(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


NOISES = {
    "normal": (bn.Gaussian(4.0), norm(scale=0.5)),
    "laplace": (bn.Laplace(0.7), laplace(scale=0.7)),
    "student": (bn.StudentT(df=4.0, scale=0.3), student_t(4.0, scale=0.3)),
}


def test_it_is_the_mean_of_the_samples_log_densities():
    for name in NOISES:
        for weights in (None, [0.5, 0.1, 0.1, 0.2, 0.1]):
            likelihood, exact = NOISES[name]
            f, y = 2 * numbers(5, 6, 2), numbers(6, 2, seed=1)
            weights_tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
            result = likelihood.predictive(f, weights_tensor).expected_log_prob(y)
            expected = np.average(exact.logpdf((y - f).numpy()), axis=0, weights=weights)
            np.testing.assert_allclose(result, expected, rtol=1e-10)
            assert result.shape == (6, 2)
            assert (result < likelihood.predictive(f, weights_tensor).log_prob(y)).all(), "the logarithm is concave"


def test_every_draw_has_its_own_noise():
    f, y = numbers(5, 6, 2), numbers(6, 1, seed=1)
    predictive = bn.HeteroscedasticGaussian().predictive(f)
    expected = norm(f[..., :1].numpy(), (0.5 * f[..., 1:]).exp().numpy()).logpdf(y.numpy()).mean(0)
    np.testing.assert_allclose(predictive.expected_log_prob(y), expected, rtol=1e-10)


def test_the_closed_form_is_an_integral_over_outputs():
    """Gauss-Hermite quadrature is exact for squares."""
    for precision in (0.2, 30.0):
        mean, variance, y = numbers(6, 2), numbers(6, 2, seed=1).square(), 3 * numbers(6, 2, seed=2)
        result = bn.Gaussian(precision).gaussian_predictive(mean, variance).expected_log_prob(y)
        node, weight = np.polynomial.hermite_e.hermegauss(5)
        outputs = mean.numpy() + variance.sqrt().numpy() * node[:, None, None]
        expected = np.average(norm(outputs, precision**-0.5).logpdf(y.numpy()), axis=0, weights=weight)
        np.testing.assert_allclose(result, expected, rtol=1e-10)


def test_the_closed_form_needs_no_more_than_the_samples_moments():
    f, y = 2 * numbers(9, 6, 1), numbers(6, 1, seed=1)
    likelihood = bn.Gaussian(4.0)
    matched = likelihood.gaussian_predictive(f.mean(0), f.var(0, correction=0))
    torch.testing.assert_close(matched.expected_log_prob(y), likelihood.predictive(f).expected_log_prob(y))


def test_missing_targets_count_for_nothing():
    f, y = numbers(5, 6, 1), numbers(6, 1, seed=1)
    some = y.clone()
    some[::2] = math.nan
    whole, missing = bn.Gaussian(4.0), bn.Gaussian(4.0, missing=True)
    moments = f.mean(0), f.var(0)
    for make in (lambda tensor: tensor.predictive(f), lambda tensor: tensor.gaussian_predictive(*moments)):
        result, expected = make(missing).expected_log_prob(some), make(whole).expected_log_prob(y)
        assert torch.equal(result, torch.where(some.isnan(), 0, expected))
        with pytest.raises(InputError, match="y must be finite, but 3 of 6 values are NaN"):
            make(whole).expected_log_prob(some)


def test_targets_of_another_shape():
    gaussian = GaussianPredictive(numbers(6, 1), numbers(6, 1).square(), torch.tensor(0.25, dtype=torch.float64))
    for predictive in (gaussian, bn.Gaussian().predictive(numbers(5, 6, 1))):
        assert predictive.expected_log_prob(numbers(6)).shape == (6, 1)
        with pytest.raises(InputError, match=r"y has shape \(5, 1\), but the predictions have shape \(6, 1\)"):
            predictive.expected_log_prob(numbers(5, 1))
