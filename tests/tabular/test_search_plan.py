"""Which settings are looked at, by rows."""

from dataclasses import replace

import numpy as np
import pytest

from bayesnorm.tabular.search_plan import DROPOUT_RATES, Setting, folds_for, plan_for
from bayesnorm.tabular.unusual_rows import Likeness


@pytest.mark.parametrize(
    ("rows", "batch_size", "encodings", "epochs", "scouts", "again"),
    [
        (6, 2, ["plain", "bins 8"], 1000, 5, 10**6),
        (90, 16, ["plain", "bins 8"], 555, 5, 10**6),
        (120, 32, ["plain", "bins 16", "bins 32"], 1000, 5, 10**6),
        (800, 32, ["plain", "bins 16", "bins 32"], 150, 2, 10**6),
        (5_000, 128, ["plain", "bins 192"], 100, 1, 1),
        (16_000, 128, ["plain", "bins 192"], 37, 1, 1),
        (36_000, 256, ["plain", "bins 192"], 55, 1, 1),
        (1_000_000, 512, ["plain", "bins 16"], 10, 1, 1),
    ],
)
def test_settings_by_rows(rows, batch_size, encodings, epochs, scouts, again):
    plan = plan_for(rows, 8)
    assert {setting.batch_size for setting in plan.settings} == {batch_size}
    assert batch_size < rows
    assert [setting.encoding for setting in plan.settings] == encodings
    assert (plan.epochs, plan.scouts, plan.again) == (epochs, scouts, again)
    assert plan.search
    fast = plan_for(rows, 8, fast=True)
    coarser = {"bins 192": "bins 64"}  # of fine bins, a third
    second = plan.settings[1]
    assert fast.settings == (replace(second, encoding=coarser.get(second.encoding, second.encoding)),)
    assert fast.epochs <= max(10, plan.epochs)
    assert fast.again == 1


def test_fine_bins_are_fewer_where_there_are_many_inputs():
    results = [plan_for(5_000, inputs).settings[1].encoding for inputs in (1, 4, 13, 1_000)]
    assert results == ["bins 384", "bins 384", "bins 118", "bins 16"]


def test_networks_of_classes_are_held_back_too():
    numbers, classes = (plan_for(800, 8, classes=flag).settings for flag in (False, True))
    assert classes[: len(numbers)] == numbers
    more = [(flag.encoding, flag.dropout_rate, flag.weight_decay) for flag in classes[len(numbers) :]]
    assert more == [("plain", 0.1, 2.0), ("plain", 0.5, 2.0), ("bins 16", 0.5, 2.0)]
    assert all(plan_for(rows, 8, classes=True) == plan_for(rows, 8) for rows in (400, 36_000))
    assert plan_for(800, 8, classes=True, fast=True) == plan_for(800, 8, fast=True)


def test_what_is_given_is_not_searched():
    choice = {"encoding": "plain", "hidden": (7,), "batch_size": 64, "dropout_rate": 0.3}
    plan = plan_for(800, 8, weight_decay=[0.1, 0.2], epochs=7, **choice)
    assert plan.settings == tuple(Setting(weight_decay=decay, **choice) for decay in (0.1, 0.2))
    assert (plan.epochs, plan.search) == (7, False)
    several = plan_for(800, 8, encoding=["plain", "waves 4"], **{k: v for k, v in choice.items() if k != "encoding"})
    assert {(setting.encoding, setting.weight_decay) for setting in several.settings} == {
        (encoding, decay) for encoding in ("plain", "waves 4") for decay in (0.1, 0.3)
    }
    plan = plan_for(800, 8, max_epochs=50)
    assert (plan.epochs, plan.evaluate_every, plan.search) == (50, 1, True)
    assert plan_for(120, 8, max_epochs=1000).evaluate_every == 25


def test_networks_with_dropout_try_several_rates():
    rates = {setting.dropout_rate for setting in plan_for(800, 8, dropout=True).settings}
    assert rates == set(DROPOUT_RATES)
    assert {setting.dropout_rate for setting in plan_for(800, 8, dropout=True, dropout_rate=0.3).settings} == {0.3}


def test_every_row_is_in_one_fold():
    for rows, wanted, count in [(8, 5, 4), (103, 5, 5), (20_001, 5, 5), (20_001, 2, 2)]:
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


@pytest.mark.parametrize("rows", [90, 400, 1_500])
def test_networks_that_share_the_work_are_trained_less(rows):
    alone, shared = plan_for(rows, 8), plan_for(rows, 8, networks_only=False)
    assert shared.settings == alone.settings
    assert shared.epochs <= 0.8 * alone.epochs
    assert (shared.scouts, shared.again, shared.curve) == (2, 1, 5)
    assert plan_for(5_000, 8, networks_only=False) == plan_for(5_000, 8)
