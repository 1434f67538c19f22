"""The MCBN paper's splits."""

import numpy as np

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
