"""The exact test of two samples' counts: against a sum over all tables, and on rows that did not change."""

import itertools

import numpy as np
import pytest
from scipy import stats

from bayesnorm.tabular import table_drift
from bayesnorm.tabular.table_drift import two_sample_chance
from bayesnorm.tabular.training_columns import NumberCounts


def summed(training, new, ordered):
    """The chance by its definition: over all ways in which new rows could lie in the bins."""
    total, n = training + new, int(new.sum())

    def smallest(counts):
        inside, result = (np.cumsum(total)[:-1], np.cumsum(counts)[:-1]) if ordered else (total, np.array(counts))
        exact = stats.hypergeom(total.sum(), inside, n)
        return min(1.0, 2 * np.minimum(exact.cdf(result), exact.sf(result - 1)).min())

    ways = [way for way in itertools.product(*(range(count + 1) for count in total)) if sum(way) == n]
    chances = stats.multivariate_hypergeom.pmf(ways, total, n)
    return sum(chance for way, chance in zip(ways, chances, strict=True) if smallest(way) <= smallest(new) * (1 + 1e-9))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(("training", "new"), [([3, 1, 4], [2, 2, 0]), ([5, 0, 2, 3], [0, 3, 1, 0]), ([6, 2], [0, 1])])
def test_it_is_the_sum_over_all_ways(training, new, ordered):
    training, new = np.array(training), np.array(new)
    assert two_sample_chance(training, new, ordered=ordered) == pytest.approx(summed(training, new, ordered), rel=1e-9)


@pytest.mark.parametrize("rows", [4, 40])
def test_rows_that_did_not_change_alarm_as_rarely_as_promised(rows):
    generator = np.random.default_rng(rows)
    rates = np.zeros(3)
    repeats = 300
    for _ in range(repeats):
        values = generator.normal(size=80 + rows)
        ages = generator.integers(0, 25, 80 + rows).astype(float)
        for i, column in enumerate((values, ages)):
            exact = NumberCounts.fit(column[:80])
            chance = two_sample_chance(np.array(exact.counts), exact.count(column[80:]), ordered=True)
            rates[i] += chance < 0.05
        towns = generator.choice(12, p=1 / np.arange(1, 13) / (1 / np.arange(1, 13)).sum(), size=80 + rows)
        counts = (np.bincount(part, minlength=12) for part in (towns[:80], towns[80:]))
        rates[2] += two_sample_chance(*counts, ordered=False) < 0.05
    assert (rates <= stats.binom.ppf(0.999, repeats, 0.05)).all()
    assert (rates >= 0.01 * repeats).all()  # exact, not merely on the safe side


def test_many_rows_have_a_chance_that_is_on_the_safe_side(monkeypatch):
    training, new = np.full(10, 60), np.array([30, 45, 50, 50, 50, 50, 50, 50, 55, 70])
    exact = two_sample_chance(training, new, ordered=True)
    monkeypatch.setattr(table_drift, "MOST_EXACT", 0)
    assert exact < two_sample_chance(training, new, ordered=True) < 9 * exact


def test_nothing_to_compare():
    assert two_sample_chance(np.array([3, 4]), np.array([0, 0]), ordered=True) == 1.0
    assert two_sample_chance(np.array([0]), np.array([5]), ordered=True) == 1.0
    assert two_sample_chance(np.array([0, 3]), np.array([0, 5]), ordered=False) == 1.0
