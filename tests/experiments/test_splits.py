"""The MCBN paper's splits."""

import numpy as np
import pytest

from bayesnorm.errors import BayesNormError
from experiments.splits import paper_split


def test_split_is_numpys_own_shuffle():
    for split in (1, 2, 3, 4, 5):
        for n_rows in (308, 506, 1599):
            state = np.random.get_state()  # noqa: NPY002
            try:
                np.random.seed(split)  # noqa: NPY002
                order = np.arange(n_rows)
                np.random.shuffle(order)  # noqa: NPY002
            finally:
                np.random.set_state(state)  # noqa: NPY002
            n_test = int(np.round(0.2 * n_rows))
            train, test = paper_split(n_rows, split)
            np.testing.assert_array_equal(test, order[:n_test])
            np.testing.assert_array_equal(train, order[n_test:])


def test_yacht_has_62_test_rows_and_the_split_is_a_partition():
    train, test = paper_split(308, 1)
    assert (len(train), len(test)) == (246, 62)
    assert sorted([*train, *test]) == list(range(308))
    # From np.random.seed(1); np.random.shuffle(np.arange(308)).
    assert test[:5].tolist() == [73, 304, 228, 238, 259]


def test_split_leaves_the_global_generator_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    paper_split(308, 1)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_bad_split_arguments():
    with pytest.raises(BayesNormError, match="split must be a whole number from 1"):
        paper_split(308, 0)
    with pytest.raises(BayesNormError, match="n_rows must be at least 3"):
        paper_split(2, 1)
    for split in (1.5, "1", 2**32):
        with pytest.raises(BayesNormError, match="split must be a whole number from 1"):
            paper_split(308, split)
    with pytest.raises(BayesNormError, match="n_rows must be at least 3"):
        paper_split(308.5, 1)
