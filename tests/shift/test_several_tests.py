"""P-values that count how many questions were asked."""

from __future__ import annotations

import numpy as np

from bayesnorm.shift import holm


def test_holm_by_hand_and_in_the_given_order():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.9, 0.6]), [1, 1])
    assert holm([]).shape == (0,)


def test_one_of_many_true_hypotheses_is_refused_as_rarely_as_the_level_says():
    p_values = np.random.default_rng(0).random((20_000, 7))
    refused = np.mean([holm(row).min() < 0.05 for row in p_values])
    exact = 1 - (1 - 0.05 / 7) ** 7
    assert abs(refused - exact) < 4 * np.sqrt(exact * (1 - exact) / len(p_values))
