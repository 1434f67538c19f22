"""Quantiles of units, and the share of units that are rejected by chance."""

import pytest
import torch
from scipy import stats

from bayesnorm.theory import Normality
from experiments.normality import normal_quantiles, rejected_by_chance, unit_quantiles


def rows(count, width, seed=0):
    return torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_quantiles():
    values = rows(40, 3)
    expected = stats.norm.ppf([(i + 0.5) / 40 for i in range(40)])
    assert normal_quantiles(40).tolist() == pytest.approx(expected.tolist())
    torch.testing.assert_close(unit_quantiles(Normality.test(values), 2), values[:, 2].sort().values)
    fitted = unit_quantiles(Normality.test(values), 2, fitted=True)
    assert float(fitted.mean()) == pytest.approx(0, abs=1e-12)
    assert float(fitted.std()) == pytest.approx(1)


def test_units_that_move_together_are_rejected_together():
    """Of independent units 9 % may be rejected by chance (two standard errors of 2.2 %); of copies, all or none."""
    independent, copies = Normality.test(rows(60, 100)), Normality.test(rows(60, 1).expand(-1, 100))
    for fitted in (False, True):
        assert rejected_by_chance(independent, fitted) == pytest.approx(0.09, abs=0.021)
        assert rejected_by_chance(copies, fitted, repeats=50) in (0, 1)
    pairs = Normality.test(rows(60, 50).repeat(1, 2))
    assert 0.09 < rejected_by_chance(pairs) < 0.16, "50 units, each twice: 5 % and 1.6 standard errors of 3.1 %"
