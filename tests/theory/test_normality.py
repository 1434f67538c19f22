"""Kolmogorov-Smirnov distances and p-values against SciPy, Lilliefors' against its own promise."""

import pytest
import torch
from scipy import stats

from bayesnorm.theory import diagnosis as ks


def normal(n, units, seed=0):
    return torch.randn(n, units, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_samples_equal_scipy():
    n = 57
    values = torch.cat([normal(n, 6), 0.4 + normal(n, 3, 1), normal(n, 3, 2).exp()], dim=1)
    distance = ks.normal_distance(values.sort(0).values)
    p_value = ks.p_value(distance, n)
    for unit in range(values.shape[1]):
        expected = stats.kstest(values[:, unit].numpy(), "norm")
        assert float(distance[unit]) == pytest.approx(expected.statistic, rel=1e-12)
        assert float(p_value[unit]) == pytest.approx(expected.pvalue, rel=1e-12)


def test_shapes_are_kept_and_columns_of_nan_stay_nan():
    values = normal(30, 4)
    values[:, 2] = torch.nan
    distance = ks.normal_distance(values.sort(0).values)
    for result in (distance, ks.p_value(distance, 30), ks.fitted_p_value(distance, 30)):
        assert result.isnan().tolist() == [False, False, True, False]
    assert ks.p_value(distance.view(2, 2), 30).shape == (2, 2)


def test_p_values_keep_their_promise_on_normal_samples():
    """5 % are rejected, within three standard errors; a fitted normal with the classical p-value misses nearly all."""
    n, units = 25, 2000
    values = normal(n, units, seed=5).sort(0).values
    error = (0.05 * 0.95 / units) ** 0.5
    p_values = ks.p_value(ks.normal_distance(values), n)
    assert float((p_values < 0.05).double().mean()) == pytest.approx(0.05, abs=3 * error)
    # Lilliefors' bounds are themselves simulated, from 4000 samples.
    error = (0.05 * 0.95 * (1 / units + 1 / ks.SIMULATIONS)) ** 0.5
    distance = ks.normal_distance(ks.fitted(values))
    assert float((ks.fitted_p_value(distance, n) < 0.05).double().mean()) == pytest.approx(0.05, abs=3 * error)
    assert float((ks.p_value(distance, n) < 0.05).double().mean()) < 0.002, "far too lenient"


def test_fitted_values_do_not_depend_on_location_and_scale():
    values = normal(40, 3)
    torch.testing.assert_close(ks.fitted(values), ks.fitted(5 - 3 * values).neg())
    assert ks.fitted(torch.ones(40, 1)).isnan().all()
