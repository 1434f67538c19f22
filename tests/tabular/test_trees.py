"""Boosted trees as plain arrays, against the predictions of scikit-learn, which fitted them."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from bayesnorm.errors import BayesNormError
from bayesnorm.tabular.tree_fitting import FoldRows, _joined, _plain, fit_locations, fit_log_scales, fit_logits
from bayesnorm.tabular.trees import BoostedTrees


def rows(count=300, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 4)).round(1)
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + 0.1 * generator.normal(size=count)


def folds_of(x, seed=0, **options):
    numbers = np.random.default_rng(seed).permutation(len(x))
    tests = [np.sort(numbers[k::3]) for k in range(3)]
    train = [np.setdiff1d(np.arange(len(x)), test) for test in tests]
    return FoldRows(x, train, tests, options.get("used"), options.get("weights"), 0)


def test_predictions_are_those_of_scikit_learn():
    x, y = rows(700)
    model = HistGradientBoostingRegressor(max_iter=30, early_stopping=False).fit(x, y)
    trees = _plain(model, [0])
    new = np.concatenate([rows(600, 1)[0], 1e9 * np.ones((1, 4)), -1e9 * np.ones((1, 4))])
    np.testing.assert_allclose(trees.predict(new)[:, 0], model.predict(new), rtol=1e-12, atol=1e-12)
    staged = np.stack(list(model.staged_predict(new)))[9::10]
    np.testing.assert_allclose(trees.paths(new, 10)[1:, :, 0], staged, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(trees.first(20).predict(new)[:, 0], staged[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_logits_are_those_of_scikit_learn(classes):
    x, y = rows()
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    model = HistGradientBoostingClassifier(max_iter=20, early_stopping=False).fit(x, labels)
    expected = model.decision_function(x)
    logits = _plain(model, [0] if classes == 2 else [0, 1, 2]).predict(x)
    np.testing.assert_allclose(logits[:, 0] if classes == 2 else logits, expected, rtol=1e-12, atol=1e-12)


def test_models_of_two_targets_become_one():
    x, y = rows()
    parts = [
        _plain(HistGradientBoostingRegressor(max_iter=10, early_stopping=False).fit(x, target), [0])
        for target in (y, y**2)
    ]
    expected = np.concatenate([part.predict(x) for part in parts], 1)
    np.testing.assert_allclose(_joined(parts).predict(x), expected, rtol=1e-12, atol=1e-12)


def test_no_model_sees_its_held_out_rows_or_features_that_it_may_not_use():
    x, y = rows()
    used = np.ones((3, 4), bool)
    used[1, 0] = False
    plain = fit_locations(folds_of(x, used=used), y[:, None])
    assert not (plain[1].feature[plain[1].threshold > -1e100] == 0).any()
    assert (plain[0].feature[plain[0].threshold > -1e100] == 0).any()
    # Targets of a fold's held-out rows do not change its trees; only the number of trees can depend on them.
    changed = y.copy()
    held_out = folds_of(x).test_rows[0]
    changed[held_out] += np.random.default_rng(1).normal(0, 0.01, len(held_out))
    again = fit_locations(folds_of(x, used=used), changed[:, None])
    common = min(len(plain[0].root), len(again[0].root))
    assert common > 1
    np.testing.assert_array_equal(plain[0].first(common).threshold, again[0].first(common).threshold)


def test_scales_follow_the_noise_and_are_constant_without_evidence():
    x, _ = rows(600)
    generator = np.random.default_rng(0)
    scale = np.where(x[:, 0] > 0, 3.0, 0.5)
    errors = np.abs(scale * generator.normal(size=600))[:, None]
    models = fit_log_scales(folds_of(x), errors)
    predicted = np.exp(np.mean([model.predict(x)[:, 0] for model in models], 0))
    assert predicted[x[:, 0] > 0.3].mean() / predicted[x[:, 0] < -0.3].mean() > 3
    flat = fit_log_scales(folds_of(x), np.abs(generator.normal(size=600))[:, None])
    values = np.concatenate([model.predict(x)[:, 0] for model in flat])
    assert values.std() < 0.1


def test_a_class_that_a_fold_lacks_is_improbable_but_possible():
    x, y = rows(90)
    labels = (y > 0).astype(np.int64)
    split = folds_of(x)
    labels[split.test_rows[0][:2]] = 2
    logits = fit_logits(split, labels, 3)[0].predict(x)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert 0 < probs[:, 2].max() < 0.1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("feature", lambda part: part + 9),
        ("feature|threshold", lambda part: part[:-1]),
        ("threshold", lambda part: part * 0),
        ("right|threshold", lambda part: part - 1),
        ("right|threshold", lambda part: part + 1_000_000),
        ("root", lambda part: part[::-1].copy()),
        ("output", lambda part: part + 1),
        ("value", lambda part: part[1:]),
    ],
)
def test_damaged_trees_are_refused(name, change):
    x, y = rows(100)
    trees = _plain(HistGradientBoostingRegressor(max_iter=5, early_stopping=False).fit(x, y), [0])
    arrays, part = trees.arrays(), name.split("|")[0]
    BoostedTrees.from_arrays(arrays, 4, 1, "trees")
    with pytest.raises(BayesNormError, match=rf"trees\.({name})"):
        BoostedTrees.from_arrays(arrays | {part: change(arrays[part])}, 4, 1, "trees")


def test_a_tree_that_continues_in_another_one_is_refused():
    x, y = rows(100)
    trees = _plain(HistGradientBoostingRegressor(max_iter=2, early_stopping=False).fit(x, y), [0])
    right = trees.right.copy()
    right[0] = trees.root[1]
    with pytest.raises(BayesNormError, match=r"trees\.right"):
        BoostedTrees.from_arrays(trees.arrays() | {"right": right}, 4, 1, "trees")


def test_trees_of_endless_depth_are_refused():
    count = 400
    place = np.arange(count)
    inner = (place % 2 == 0) & (place < count - 1)
    arrays = {
        "feature": np.zeros(count, np.int32),
        "threshold": np.where(inner, 0.0, -1e150),
        "right": np.where(inner, np.minimum(place + 2, count - 1), place).astype(np.int32),
        "value": np.zeros(count),
        "root": np.zeros(1, np.int32),
        "output": np.zeros(1, np.int32),
        "baseline": np.zeros(1),
    }
    arrays["right"][-2], arrays["threshold"][-2] = count - 2, -1e150
    with pytest.raises(BayesNormError, match="levels"):
        BoostedTrees.from_arrays(arrays, 1, 1, "trees")
