"""Kolmogorov-Smirnov distances and p-values against SciPy and printed tables, Lilliefors' against its own promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from bayesnorm.theory import normality as ks


def normal(n, units, seed=0):
    return torch.randn(n, units, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# Miller (1956): distances that are exceeded with probability 0.05 and 0.01.
PRINTED = {5: (0.56328, 0.66853), 10: (0.40925, 0.48893), 20: (0.29408, 0.35241), 100: (0.13403, 0.16081)}


def test_p_values_are_those_of_printed_tables():
    for n in PRINTED:
        found = ks.p_value(torch.tensor(PRINTED[n], dtype=torch.float64), n)
        np.testing.assert_allclose(found, [0.05, 0.01], rtol=1e-3)
        for level, expected in zip((0.05, 0.01), PRINTED[n], strict=True):
            assert ks.critical_distance(n, level) == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize("n", [20, 57, 256, 1000])
def test_small_p_values_are_twice_those_of_one_side(n):
    """Smirnov's exact sum for one side; to leave the band on both is far less probable still."""
    distance = torch.linspace(0.2, 8, 300, dtype=torch.float64) / n**0.5
    distance = distance[distance < 1]
    found, one_side = ks.p_value(distance, n).numpy(), special.smirnov(n, distance.numpy())
    small = one_side < 1e-3
    assert small.sum() > 50
    np.testing.assert_allclose(found[small], 2 * one_side[small], rtol=1e-6, atol=1e-290)
    assert (np.diff(found) <= 0).all()


@pytest.mark.parametrize("n", [20, 256])
def test_samples_equal_scipy(n):
    values = torch.cat([normal(n, 6), 0.4 + normal(n, 3, 1), normal(n, 3, 2).exp()], dim=1)
    distance = ks.normal_distance(values.sort(0).values)
    p_value = ks.p_value(distance, n)
    for unit in range(values.shape[1]):
        expected = stats.kstest(values[:, unit].numpy(), "norm")
        assert float(distance[unit]) == pytest.approx(expected.statistic, rel=1e-12)
        assert float(p_value[unit]) == pytest.approx(expected.pvalue, rel=1e-12)


def test_no_distance_and_the_largest():
    assert ks.p_value(torch.tensor([0.0, 1e-9, 1.0]), 30).tolist() == [1, 1, 0]


def test_shapes_are_kept_and_columns_of_nan_stay_nan():
    values = normal(30, 4)
    values[:, 2] = torch.nan
    distance = ks.normal_distance(values.sort(0).values)
    for found in (distance, ks.p_value(distance, 30), ks.fitted_p_value(distance, 30)):
        assert found.isnan().tolist() == [False, False, True, False]
    assert ks.p_value(distance.view(2, 2), 30).shape == (2, 2)


@pytest.mark.parametrize("n", [25, 200])
def test_p_values_keep_their_promise_on_normal_samples(n):
    """5 % are rejected, within three standard errors; a fitted normal with the classical p-value misses nearly all."""
    units = 2000
    values = normal(n, units, seed=5).sort(0).values
    error = (0.05 * 0.95 / units) ** 0.5
    known = ks.p_value(ks.normal_distance(values), n)
    assert float((known < 0.05).double().mean()) == pytest.approx(0.05, abs=3 * error)
    # Lilliefors' bounds are themselves simulated, from 4000 samples.
    error = (0.05 * 0.95 * (1 / units + 1 / ks.SIMULATIONS)) ** 0.5
    distance = ks.normal_distance(ks.fitted(values))
    assert float((ks.fitted_p_value(distance, n) < 0.05).double().mean()) == pytest.approx(0.05, abs=3 * error)
    assert float((ks.p_value(distance, n) < 0.05).double().mean()) < 0.002, "far too lenient"


def test_fitted_values_do_not_depend_on_location_and_scale():
    values = normal(40, 3)
    torch.testing.assert_close(ks.fitted(values), ks.fitted(5 - 3 * values).neg())
    assert ks.fitted(torch.ones(40, 1)).isnan().all()


def test_critical_distances():
    for n in (20, 256):
        for level in (0.05, 0.01):
            distance = torch.tensor([ks.critical_distance(n, level)], dtype=torch.float64)
            assert ks.p_value(distance, n).item() == pytest.approx(level, rel=1e-4)
