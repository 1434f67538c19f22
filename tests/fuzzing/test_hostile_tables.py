"""Hostile tables are refused in one line or read, in memory that is a stated multiple of `--max-size`.

`python -m tests.fuzzing tables` reads 2,000 of them.
"""

import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

from .child import in_a_child
from .tables import SHAPES, read_hostile_tables

# Shapes that every run of the tests reads, beside every second one of all formats and some files with random changes.
NAMES = ("xlsx, a row far away", "parquet, nulls", "zip, one line", "array, an object without end")
SEEDS = [*range(0, 90, 2), *(number for number, name in enumerate(SHAPES) if name in NAMES and number % 2)]

# Bytes of memory that a process may take, also if a file has more.
MEMORY = 2**31


def test_hostile_tables_are_refused_or_read_in_little_memory(tmp_path):
    def read_all():
        outcomes = read_hostile_tables(tmp_path, SEEDS, quick=True)
        assert not outcomes.faults, outcomes.as_json()
        assert outcomes.counts["refused"] > len(SEEDS) / 3

    in_a_child(read_all, MEMORY)
