"""Which settings are looked at, by rows."""

from __future__ import annotations

import numpy as np
import pytest

from bayesnorm.tabular.likeness import Likeness
from bayesnorm.tabular.search_plan import folds_for, plan_for


@pytest.mark.parametrize(
    ("rows", "sizes", "decays", "epochs"),
    [
        (6, (2,), 2, 300),
        (90, (16,), 2, 300),
        (120, (32,), 4, 1000),
        (800, (32, 128), 4, 625),
        (5_000, (32, 128), 3, 300),
        (10_000, (64, 256), 2, 250),
        (36_000, (128, 512), 2, 69),
        (1_000_000, (128, 512), 2, 20),
    ],
)
def test_settings_by_rows(rows, sizes, decays, epochs):
    plan = plan_for(rows, dropout=False)
    assert plan.batch_sizes == sizes
    assert max(sizes) < rows
    assert len(plan.weight_decays) == decays
    assert plan.epochs == epochs
    assert plan.search
    assert plan.dropout_rates == (None,)
    assert plan.settings == len(sizes) * decays


def test_what_is_given_is_not_searched():
    plan = plan_for(800, dropout=True, batch_size=64, weight_decay=[0.1, 0.2], dropout_rate=0.3, epochs=7)
    assert (plan.batch_sizes, plan.weight_decays, plan.dropout_rates) == ((64,), (0.1, 0.2), (0.3,))
    assert (plan.epochs, plan.search) == (7, False)
    assert plan_for(800, dropout=True).dropout_rates == (0.01, 0.05, 0.1)
    plan = plan_for(800, dropout=False, max_epochs=50, patience=10)
    assert (plan.epochs, plan.evaluate_every, plan.patience) == (50, 1, 10)


def test_every_row_is_in_one_fold():
    for rows, wanted, count in [(8, 5, 4), (103, 5, 5), (20_001, 5, 3), (20_001, 2, 2)]:
        folds = folds_for(rows, wanted, np.random.default_rng(0))
        assert len(folds) == count
        np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(rows))
        assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_classes_are_spread_over_folds():
    classes = np.repeat([0, 1, 2], [50, 25, 5])
    for fold in folds_for(80, 5, np.random.default_rng(0), classes):
        np.testing.assert_array_equal(np.bincount(classes[fold]), [10, 5, 1])


def test_half_a_percent_of_rows_like_training_is_called_unlike():
    generator = np.random.default_rng(0)
    mix = generator.normal(size=(5, 5))
    features = generator.normal(size=(4000, 5)) @ mix
    likeness = Likeness.fit(features, folds_for(4000, 5, generator))
    new = generator.normal(size=(4000, 5)) @ mix
    # 4 standard errors of a share of .005 among 4000 rows, twice: the threshold is one too
    assert likeness.unlike(new).mean() == pytest.approx(0.005, abs=4 * np.sqrt(2 * 0.005 / 4000))
    across = np.linalg.svd(mix)[2][-1] * np.abs(features).max()  # no column is out of its range
    assert likeness.unlike(across[None])[0]
    wide = generator.normal(size=(50, 400))
    assert np.isfinite(Likeness.fit(wide, folds_for(50, 5, generator)).distance(wide)).all()
