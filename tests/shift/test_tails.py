"""Tails of distances against SciPy's distributions."""

import numpy as np
import scipy.stats

from bayesnorm_runtime.batch_reference import log_tail, pearson_tail

AT = np.linspace(-4, 9, 27)


def test_tails_of_skewed_distances_are_those_of_pearsons_third_type():
    for skew in (-2.8, -1.0, -1e-3, -1e-7, 0.0, 1e-7, 1e-3, 0.4, 1.9, 2.8, 7.0):
        expected = scipy.stats.pearson3.sf(AT, np.clip(skew, -np.sqrt(8), np.sqrt(8)))
        # SciPy takes the skewness of 1e-3 through other formulas, of which one loses digits far out.
        np.testing.assert_allclose(pearson_tail(AT, np.full_like(AT, skew)), expected, rtol=1e-6, atol=1e-16)


def test_tails_of_logarithms_skewed_to_the_left_are_those_of_gamma_variables():
    std, count = 0.4, 10**7  # so many batches leave nothing of Student's t
    shape = (1 + np.sqrt(1 + 2 * std**2)) / (2 * std**2)
    logs = scipy.stats.loggamma(shape).ppf([0.05, 0.5, 0.9, 0.99])
    mean = scipy.special.digamma(shape)
    result = log_tail(logs, np.full(4, mean), np.full(4, std), np.full(4, -0.3), count)
    np.testing.assert_allclose(result, [0.95, 0.5, 0.1, 0.01], rtol=1e-4)


def test_few_batches_make_far_distances_less_strange():
    logs, zero, one = np.array([3.0]), np.zeros(1), np.ones(1)
    few, many = (log_tail(logs, zero, one, 0.5 * one, count) for count in (8, 10**6))
    assert few > 2 * many
