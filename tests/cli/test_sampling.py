"""Rows that are drawn while a table is read."""

from __future__ import annotations

import numpy as np
import pytest

from bayesnorm.cli import sampling
from bayesnorm.cli.sampling import read_sample
from bayesnorm.cli.tables import open_table

from ..marks import takes_long
from .conftest import houses, write_csv


@pytest.fixture
def numbers(tmp_path):
    """1,000 rows, every tenth without a target."""
    lines = [[i, "" if i % 10 == 0 else i] for i in range(1000)]
    return open_table(write_csv(tmp_path / "numbers.csv", [["x", "y"], *lines]))


def test_rows_with_a_target_are_drawn_in_order_and_none_twice(numbers):
    found = read_sample(numbers, 50, "y", seed=0, chunk=70)
    drawn = found.frame["x"].astype(int).to_numpy()
    assert (found.rows, found.without, len(drawn)) == (900, 100, 50)
    assert (np.diff(drawn) > 0).all()
    assert (drawn % 10 != 0).all()
    assert found.frame.index.tolist() == (drawn + 1).tolist()
    assert len(read_sample(numbers, 5_000, "y", seed=0).frame) == 900


@takes_long
def test_all_rows_have_the_same_chance(numbers):
    counts = np.zeros(1000)
    for seed in range(200):
        counts[read_sample(numbers, 90, "y", seed, chunk=300).frame["x"].astype(int)] += 1
    first, last = counts[:500].sum(), counts[500:].sum()
    # 18,000 samples without replacement, half of them from each half but for chance.
    assert abs(first - last) < 4 * np.sqrt(18_000 * 0.9)
    assert counts[counts > 0].size == 900


def test_no_more_is_held_than_a_part_and_twice_the_sample(numbers, monkeypatch):
    held, smallest = [], sampling._smallest

    def watched(parts, keys, most):
        held.append(len(keys))
        return smallest(parts, keys, most)

    monkeypatch.setattr(sampling, "_smallest", watched)
    read_sample(numbers, 20, "y", seed=0, chunk=50)
    assert max(held) <= 2 * 20 + 50


def test_parquet_is_read_in_parts(tmp_path):
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    lines = houses(40)[1:]
    frame = pandas.DataFrame([[float(a), c] for a, _, c, _ in lines], columns=["area", "town"])
    path = tmp_path / "houses.parquet"
    frame.to_parquet(path, row_group_size=15)
    assert parquet.ParquetFile(path).num_row_groups == 3
    found = read_sample(open_table(path), 12, "area", seed=1, chunk=7)
    assert (found.rows, len(found.frame)) == (40, 12)
    np.testing.assert_array_equal(found.frame["area"], frame["area"].iloc[found.frame.index - 1])
