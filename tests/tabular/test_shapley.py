"""Shapley values against what their definition says, by a plain loop over all orders."""

from itertools import permutations

import numpy as np
import pytest

from bayesnorm.tabular import explaining
from bayesnorm.tabular.explaining import Exchanges, shapley_values

GROUPS = np.array([0, 1, 1, 2, 3])
"""Four columns of five features; column 1 has two of them."""


def by_all_orders(value, row, baseline, columns):
    """The definition: the mean, over all orders of the columns, of what each adds when its turn comes."""
    result = np.zeros(columns)
    orders = list(permutations(range(columns)))
    for order in orders:
        now = baseline.copy()
        for column in order:
            before = value(now[None])[0]
            now[column == GROUPS] = row[column == GROUPS]
            result[column] += (value(now[None])[0] - before) / len(orders)
    return result


def knotted(x):
    """Every feature works together with others, in products of two and of three; the last one with none at all."""
    return np.exp(x[:, 0]) * x[:, 1] + x[:, 2] * x[:, 3] * x[:, 0] - np.abs(x[:, 3])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(3, 5))


def test_of_few_columns_it_is_the_definition(rows):
    baseline = np.array([0.3, -0.2, 0.5, 1.0, 2.0])
    result, totals, start = shapley_values(knotted, rows, baseline, GROUPS, Exchanges.sample(4, 10, 0))
    np.testing.assert_allclose(result, [by_all_orders(knotted, row, baseline, 4) for row in rows], atol=1e-12)
    np.testing.assert_array_equal(totals, knotted(rows))
    assert start == knotted(baseline[None])[0]
    assert np.abs(result[:, :3]).min() > 0.01


@pytest.mark.parametrize("pairs", [1, 4])
def test_shares_sum_to_the_difference_and_what_changes_nothing_gets_none(rows, pairs):
    baseline = np.zeros(5)
    rows[1, GROUPS == 2] = 0.0
    result, totals, start = shapley_values(knotted, rows, baseline, GROUPS, Exchanges.sampled(4, pairs, 1))
    np.testing.assert_allclose(result.sum(1), totals - start, rtol=0, atol=1e-13)
    np.testing.assert_allclose([*result[:, 3], result[1, 2]], 0, atol=1e-15)
    assert abs(result[0, 2]) > 0.01


def test_an_order_and_its_reverse_are_exact_for_products_of_two_columns():
    """Of two columns each comes first in one of the two orders, which is what a mean over all orders does."""
    generator = np.random.default_rng(1)
    matrix, row = generator.normal(size=(12, 12)), generator.normal(size=(1, 12))

    def value(x):
        return np.einsum("ni,ij,nj->n", x, matrix, x) + x.sum(1)

    symmetric = (matrix + matrix.T) / 2
    exact = row * (row @ symmetric) + row  # a product is shared by halves
    result, _, _ = shapley_values(value, row, np.zeros(12), np.arange(12), Exchanges.sample(12, 1, 0))
    np.testing.assert_allclose(result, exact, rtol=1e-10)


def test_drawn_orders_come_close_to_all_orders(rows):
    baseline = np.array([0.3, -0.2, 0.5, 1.0, 2.0])
    exact = shapley_values(knotted, rows, baseline, GROUPS, Exchanges.all(4))[0]
    results = [shapley_values(knotted, rows, baseline, GROUPS, Exchanges.sampled(4, 5, seed))[0] for seed in range(200)]
    error = np.std(results, 0) / np.sqrt(len(results))
    assert (np.abs(np.mean(results, 0) - exact) <= 4 * error + 1e-12).all()
    assert error.max() > 0


def test_columns_that_do_the_same_get_the_same():
    row, baseline = np.array([[2.0, 2.0, -1.0]]), np.zeros(3)
    result = shapley_values(lambda x: np.exp(x.sum(1)), row, baseline, np.arange(3), Exchanges.sample(3, 10, 0))[0][0]
    assert result[0] == pytest.approx(result[1], rel=1e-12)
    assert result[2] < 0 < result[0]


@pytest.mark.parametrize(("columns", "pairs"), [(4, 10), (9, 10), (30, 3)])
def test_what_it_costs(columns, pairs):
    asked = []

    def value(x):
        asked.append(len(x))
        return x.sum(1)

    rows = np.random.default_rng(0).normal(size=(7, columns))
    shapley_values(value, rows, np.zeros(columns), np.arange(columns), Exchanges.sample(columns, pairs, 0))
    most = min(2**columns - 1, 2 * pairs * (columns - 1) + 1)
    assert sum(asked) - 1 <= 7 * most
    assert sum(asked) - 1 > 7 * most * 0.7  # but for sets that two orders share
    assert max(asked) <= explaining.BLOCK


def test_parts_of_any_size_give_the_same(rows, monkeypatch):
    arguments = knotted, rows, np.ones(5), GROUPS, Exchanges.sample(4, 10, 0)
    whole = shapley_values(*arguments)[0]
    monkeypatch.setattr(explaining, "BLOCK", 4)
    monkeypatch.setattr(explaining, "MOST_VALUES", 20)
    np.testing.assert_allclose(shapley_values(*arguments)[0], whole, rtol=1e-12, atol=1e-14)


def test_one_column_or_none():
    rows = np.array([[2.0], [5.0]])
    result = shapley_values(lambda x: x[:, 0], rows, np.ones(1), np.zeros(1, int), Exchanges.sample(1, 3, 0))[0]
    assert result.tolist() == [[1.0], [4.0]]
    none = Exchanges.sample(0, 3, 0)
    result, totals, start = shapley_values(lambda x: x[:, 0], rows, np.ones(1), np.zeros(0, int), none)
    assert result.shape == (2, 0)
    assert (totals.tolist(), start) == ([1.0, 1.0], 1.0)
