"""Of a wide table, every network uses the columns that are associated with the target in its own training rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from bayesnorm.errors import BayesNormWarning, FileFormatError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, load
from bayesnorm.tabular.column_checks import ColumnScreen
from bayesnorm.tabular.preprocessing import Preprocessing
from bayesnorm.tabular.targets import LabelTargets, NumberTargets

ROWS = torch.arange(120)


def wide(rows=120, columns=2_000, seed=0):
    """Return columns of noise, and the noise of a target."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, columns)), 0.3 * generator.normal(size=rows)


def chosen(x, targets, rows=ROWS):
    return np.flatnonzero(ColumnScreen(x, np.arange(x.shape[1]), targets).chosen(rows)).tolist()


def numbers(*columns, weights=None):
    return NumberTargets.from_array(np.stack(columns, 1), weights, heteroscedastic=False)


def test_columns_with_an_association_are_chosen_and_columns_of_noise_are_not():
    x, noise = wide()
    y = x[:, 7] + np.square(x[:, 9]) + noise
    assert {7, 9} <= set(chosen(x, numbers(y)))
    assert len(chosen(x, numbers(y))) < 12
    assert {7, 9} <= set(chosen(x, numbers(x[:, 7] + noise, np.exp(9 * x[:, 9]))))  # several targets, one with outliers
    assert {3, 4} <= set(chosen(x, LabelTargets(torch.from_numpy((x[:, 3] > 0) + (x[:, 4] > 0)).long(), None, 3)))
    weights = torch.ones(len(y)).index_fill(0, torch.arange(40), 0.0)  # rows of weight 0 do not count
    assert {7} <= set(chosen(x, numbers(np.where(np.arange(120) < 40, 1e3 * x[:, 5], y), weights=weights)))
    noisy = [wide(seed=seed) for seed in range(1, 11)]
    assert [chosen(x, numbers(noise)) for x, noise in noisy].count([]) >= 4  # half of them are expected


def test_all_features_of_a_column_are_chosen_together():
    x, noise = wide(columns=400)
    y = x[:, 7] + noise
    groups = np.arange(200).repeat(2)
    assert np.flatnonzero(ColumnScreen(x, groups, numbers(y)).chosen(ROWS)).tolist()[:2] == [6, 7]


def test_constant_features_and_few_rows_are_no_problem():
    x, noise = wide()
    x[:, 5] = 1.0
    assert chosen(x, numbers(noise), torch.arange(2)) == []
    assert 5 not in chosen(x, numbers(noise))


@pytest.fixture(scope="module")
def fitted():
    """A regression of five columns out of 500, and new rows."""
    x, noise = wide(150, 500)
    y = x[:, :5].sum(1) + noise
    settings = {"hidden": (16,), "folds": 3, "members": 3, "max_epochs": 40, "samples": 8, "random_state": 0}
    with pytest.warns(BayesNormWarning, match=r"use \d+ of the 500 columns: x0, x1, x2, x3, x4,"):
        model = BayesNormRegressor(**settings, encoding="bins 4").fit(
            pd.DataFrame(x[:100], columns=[f"x{number}" for number in range(500)]), y[:100]
        )
    return model, pd.DataFrame(x[100:], columns=model.feature_names_in_), y[100:]


def test_few_columns_of_a_wide_table_predict_new_rows(fitted):
    model, new, y = fitted
    assert 5 <= model.preprocessing_.inputs < 40
    assert 1 - np.square(model.predict(new) - y).mean() / y.var() > 0.6


def test_no_network_uses_a_column_that_only_its_held_out_rows_choose(fitted):
    model, *_ = fitted
    used, folds = np.array(model.preprocessing_.used), model.selection_.out_of_fold
    patterns = []
    for member in model.posterior_.members:
        first = next(tensor for tensor in member.model.state_dict().values() if tensor.dim() == 2)
        patterns.append(used[(first[:, : len(used)] != 0).any(0).numpy()].tolist())
        assert set(patterns[-1]) <= set(used.tolist())
        assert not bool(first[:, (first[:, : len(used)] == 0).all(0).nonzero()[:, 0]].any())
    x, noise = wide(150, 500)
    features = Preprocessing.fit(x[:100]).transform(x[:100])
    y = numbers((x[:, :5].sum(1) + noise)[:100])
    for number, pattern in enumerate(patterns):
        rows = torch.from_numpy(np.sort(folds.rows[folds.fold != number]))
        assert chosen(features, y, rows) == pattern
    assert len({tuple(pattern) for pattern in patterns}) > 1


def test_a_saved_model_of_a_wide_table_predicts_the_same(fitted, tmp_path):
    model, new, _ = fitted
    model.save(tmp_path / "model.bayesnorm")
    again = load(tmp_path / "model.bayesnorm")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert again.preprocessing_.used == model.preprocessing_.used
    config = model.preprocessing_.config()
    for used in ([0, 0], [500], [-1], [3, 2], ["0"]):
        with pytest.raises(FileFormatError):
            Preprocessing.from_config({**config, "used": used})


def test_only_used_columns_explain_uncertainty(fitted):
    model, new, _ = fitted
    explanation = model.explain_uncertainty(new[:2] + 1)
    values = explanation.contributions.to_numpy()
    unused = model.preprocessing_.widths == 0
    assert unused.sum() > 400
    assert not values[:, unused].any()
    np.testing.assert_allclose(values.sum(1), explanation.total - explanation.baseline, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", [BayesNormRegressor, BayesNormClassifier])
def test_without_any_association_predictions_do_not_depend_on_the_row(kind, quick, tmp_path):
    x, noise = wide(60, 400, seed=8)
    y = noise if kind is BayesNormRegressor else np.where(noise > 0, "yes", "no")
    with pytest.warns(BayesNormWarning, match="None of the 400 columns is associated with the target"):
        model = kind(**quick).fit(x, y)
    predictive = model.predict_dist(x[:5])
    values = predictive.probs if kind is BayesNormClassifier else predictive.mean
    torch.testing.assert_close(values, values[:1].expand_as(values))
    model.save(tmp_path / "model")
    assert len(load(tmp_path / "model").predict(x)) == 60
    assert model.explain_uncertainty(x[:1]).contributions.to_numpy().any() == 0


def test_only_tables_with_many_columns_or_more_columns_than_rows_are_screened(quick):
    x, noise = wide(40, 40)
    assert BayesNormRegressor(**quick).fit(x, noise).preprocessing_.used is None
    with pytest.warns(BayesNormWarning, match="of the 40 columns"):
        model = BayesNormRegressor(**quick).fit(x[:39], noise[:39] + x[:39, 0])
    assert model.preprocessing_.used is not None
    without_folds = {**quick, "folds": None, "epochs": 2, "max_epochs": None, "batch_size": 8, "dropout_rate": 0.0}
    with pytest.warns(BayesNormWarning, match="of the 40 columns"):
        BayesNormRegressor(**without_folds).fit(x[:39], noise[:39] + x[:39, 0])
