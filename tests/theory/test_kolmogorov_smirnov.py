"""Kolmogorov-Smirnov distances and p-values against SciPy, and Lilliefors' test against its own promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from bayesnorm.theory import kolmogorov_smirnov as ks


def normal(n, units, seed=0):
    return torch.randn(n, units, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [20, 57, 256, 1000])
def test_p_values_equal_scipy(n):
    """SciPy computes the exact distribution."""
    distance = torch.linspace(0.2, 8, 300, dtype=torch.float64) / n**0.5
    distance = distance[distance < 1]
    expected = stats.kstwo.sf(distance.numpy(), n)
    found = ks.p_value(distance, n).numpy()
    np.testing.assert_allclose(found, expected, rtol=0.1 / n)
    small = expected < 1e-3
    assert small.sum() > 50
    np.testing.assert_allclose(found[small], expected[small], rtol=1e-6, atol=1e-290)
    assert (np.diff(found) <= 0).all()


@pytest.mark.parametrize("n", [20, 256])
def test_samples_equal_scipy(n):
    values = torch.cat([normal(n, 6), 0.4 + normal(n, 3, 1), normal(n, 3, 2).exp()], dim=1)
    distance = ks.normal_distance(values.sort(0).values)
    p_value = ks.p_value(distance, n)
    for unit in range(values.shape[1]):
        expected = stats.kstest(values[:, unit].numpy(), "norm")
        assert float(distance[unit]) == pytest.approx(expected.statistic, rel=1e-12)
        assert float(p_value[unit]) == pytest.approx(expected.pvalue, rel=0.1 / n)


def test_no_distance_and_the_largest():
    assert ks.p_value(torch.tensor([0.0, 1e-9, 1.0]), 30).tolist() == [1, 1, 0]


def test_shapes_are_kept_and_columns_of_nan_stay_nan():
    values = normal(30, 4)
    values[:, 2] = torch.nan
    distance = ks.normal_distance(values.sort(0).values)
    for found in (distance, ks.p_value(distance, 30), ks.fitted_p_value(distance, 30)):
        assert found.isnan().tolist() == [False, False, True, False]
    assert ks.p_value(distance.view(2, 2), 30).shape == (2, 2)


@pytest.mark.parametrize("n", [20, 100])
def test_many_units_are_done_in_parts(n, monkeypatch):
    distance = ks.normal_distance(normal(n, 50).sort(0).values)
    whole = ks.p_value(distance, n)
    monkeypatch.setattr(ks, "BLOCK", 7 * n)
    assert torch.equal(ks.p_value(distance, n), whole)


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


@pytest.mark.parametrize("n", [20, 256])
def test_critical_distances(n):
    assert ks.critical_distance(n) == pytest.approx(stats.kstwo.isf(0.05, n), rel=1e-4)
    assert ks.critical_distance(n, 0.01) == pytest.approx(stats.kstwo.isf(0.01, n), rel=1e-4)
    bound = ks.fitted_critical_distance(n)
    around = torch.tensor([bound * 0.99999, bound], dtype=torch.float64)
    above, at = ks.fitted_p_value(around, n).tolist()
    assert at <= 0.05
    assert above == pytest.approx(at, abs=2 / ks.SIMULATIONS)
    # Lilliefors' own table (1967) from 1000 simulations: 0.190 at n = 20, 0.886 / sqrt(n) for large ones.
    assert bound == pytest.approx({20: 0.190, 256: 0.886 / 16}[n], rel=0.03)
