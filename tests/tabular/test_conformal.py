"""Intervals with a guarantee: against order statistics by hand, in simulations, and of estimators."""

import math

import numpy as np
import pytest
from crepes import ConformalPredictiveSystem
from mapie.conformity_scores import AbsoluteConformityScore
from mapie.regression import CrossConformalRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from bayesnorm.errors import BayesNormError
from bayesnorm.tabular import BayesNormRegressor, load
from bayesnorm.tabular.intervals import ConformalScores

DRAWS = 500


def test_one_member_is_split_conformal():
    generator = np.random.default_rng(0)
    mean, std, y = generator.normal(size=39), np.exp(generator.normal(size=39)), generator.normal(size=39)
    posterior = ConformalScores.fit([mean], [std], [y])
    new, scale = np.array([[0.3, -2.0]]), np.array([[1.5, 0.2]])
    lower, upper = posterior.interval(new, scale, 0.8)
    scores = np.sort((y - mean) / std)
    # 39 scores cut the line into 40 parts of the same probability: four on either side are left out.
    np.testing.assert_allclose(lower, (new + scale * scores[4 - 1])[0])
    np.testing.assert_allclose(upper, (new + scale * scores[36 - 1])[0])


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_several_members_are_order_statistics_of_all_their_moved_predictions(level):
    generator = np.random.default_rng(1)
    sizes, rows = [7, 8, 6], 5
    parts = [[generator.normal(size=n) for n in sizes] for _ in range(3)]
    parts[1] = [np.exp(part) for part in parts[1]]
    posterior = ConformalScores.fit(*parts)
    assert posterior.rows == 21
    mean, std = generator.normal(size=(3, rows)), np.exp(generator.normal(size=(3, rows)))
    lower, upper = posterior.interval(mean, std, level)
    for row in range(rows):
        moved = np.sort(np.concatenate([mean[k, row] + std[k, row] * posterior.scores[k] for k in range(3)]))
        tail = (1 - level) / 2
        low, high = math.floor(round(tail * 22, 6)), math.ceil(round((1 - tail) * 22, 6))
        assert lower[row] == pytest.approx(moved[low - 1])
        assert upper[row] == pytest.approx(moved[high - 1])
    # y lies within just where the share of values below it does
    y = generator.normal(size=rows)
    share = posterior.cdf(mean, std, y)
    assert ((share >= 0) & (share < 1)).all()
    np.testing.assert_array_equal(share * 22 + 1e-9 >= low, y >= lower)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_one_member_is_a_predictive_system_of_crepes(level):
    generator = np.random.default_rng(2)
    mean, std, y = generator.normal(size=150), np.exp(generator.normal(size=150)), generator.normal(size=150)
    new, scale = generator.normal(size=6), np.exp(generator.normal(size=6))
    theirs = ConformalPredictiveSystem().fit(y - mean, sigmas=std).predict_int(new, sigmas=scale, confidence=level)
    ours = ConformalScores.fit([mean], [std], [y]).interval(new[None], scale[None], level)
    np.testing.assert_allclose(np.stack(ours, 1), theirs)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_members_of_folds_are_mapies_cross_conformal_regressor(level):
    generator, folds = np.random.default_rng(3), KFold(5)
    x, new = generator.normal(size=(150, 1)), generator.normal(size=(7, 1))
    y = 2 * x[:, 0] + generator.exponential(size=150)
    lopsided = AbsoluteConformityScore(sym=False)
    model = CrossConformalRegressor(
        LinearRegression(), confidence_level=level, method="plus", cv=folds, conformity_score=lopsided
    )
    _, theirs = model.fit_conformalize(x, y).predict_interval(new)
    parts = list(folds.split(x))
    members = [LinearRegression().fit(x[learned], y[learned]) for learned, _ in parts]
    said = [member.predict(x[asked]) for member, (_, asked) in zip(members, parts, strict=True)]
    posterior = ConformalScores.fit(said, [np.ones_like(part) for part in said], [y[asked] for _, asked in parts])
    mean = np.stack([member.predict(new) for member in members])
    ours = posterior.interval(mean, np.ones_like(mean), level)
    np.testing.assert_allclose(np.stack(ours, 1), theirs[:, :, 0])


def test_too_few_scores_have_no_end():
    posterior = ConformalScores.fit([np.zeros(9)], [np.ones(9)], [np.arange(9.0)])
    lower, upper = posterior.interval(np.zeros((1, 2)), np.ones((1, 2)), 0.9)
    assert (lower == -np.inf).all()
    assert (upper == np.inf).all()
    lower, upper = posterior.interval(np.zeros((1, 2)), np.ones((1, 2)), 0.8)
    assert lower.tolist() == pytest.approx([0.0, 0.0])
    assert upper.tolist() == pytest.approx([8.0, 8.0])


def least_squares(x, y):
    """Members that are lines, whose deviation is the same everywhere."""
    design = np.stack([np.ones_like(x), x], 1)
    weights = np.linalg.lstsq(design, y, rcond=None)[0]
    std = np.sqrt(np.square(y - design @ weights).mean())
    return lambda at: (weights[0] + weights[1] * at, np.full(len(at), std))


def covered(generator, folds, level):
    """Whether a new target lies within an interval, and how wide that is; the line is the wrong model."""
    rows = 40
    x = generator.uniform(-1, 1, rows + 1)
    y = 2 * np.abs(x) + generator.exponential(size=rows + 1) * (1.2 + x)  # lopsided noise that grows with x
    parts = np.array_split(np.arange(rows), folds or 2)
    asked = parts if folds else parts[:1]  # of a split, only one half is held out
    members = [
        least_squares(x[others], y[others]) for others in (np.setdiff1d(np.arange(rows), fold) for fold in asked)
    ]
    said = [member(x[fold]) for member, fold in zip(members, asked, strict=True)]
    posterior = ConformalScores.fit([m for m, _ in said], [s for _, s in said], [y[fold] for fold in asked])
    mean, std = (np.array(part) for part in zip(*(member(x[rows:]) for member in members), strict=True))
    lower, upper = posterior.interval(mean, std, level)
    return lower[0] <= y[rows] <= upper[0], upper[0] - lower[0]


@pytest.mark.parametrize("folds", [0, 5], ids=["split", "folds"])
def test_new_targets_lie_within_as_often_as_guaranteed(folds):
    level, generator = 0.8, np.random.default_rng(2)
    results = [covered(generator, folds, level) for _ in range(DRAWS)]
    share = np.mean([inside for inside, _ in results])
    error = np.sqrt(level * (1 - level) / DRAWS)
    # A split promises `level`; folds promise 1 - 2 a less a little, and give about `level` in practice.
    assert share >= level - 3 * error
    promised = level if not folds else 1 - 2 * (1 - level) - 2 * (1 - 1 / folds) / (40 / folds + 1)
    assert promised <= level
    # ... and not because intervals are endless: 20 scores leave out at most 2/21 more than they should.
    assert share <= level + 2 / 21 + 3 * error
    assert all(np.isfinite(width) for _, width in results)


def lopsided(rows, seed):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 2))
    return X, X[:, 0] + generator.exponential(size=rows)


@pytest.mark.parametrize("members", [1, 3])
def test_intervals_of_an_estimator(quick, members, tmp_path):
    X, y = lopsided(200, 0)
    quick |= {"members": members, "dropout_rate": 0.0}
    model = BayesNormRegressor(**quick, conformal=True).fit(X, y)
    (scores,) = model.selection_.conformal
    assert len(scores.scores) == min(members, 2)
    assert scores.rows == (100 if members == 1 else 200)
    later, truth = lopsided(1000, 1)
    lower, upper = model.predict_interval(later, 0.8)
    assert lower.shape == upper.shape == (1000,)
    inside = ((lower <= truth) & (truth <= upper)).mean()
    # 4 standard errors of a share, of 1000 new rows and of the scores
    assert inside == pytest.approx(0.8, abs=4 * np.sqrt(0.16 * (1 / 1000 + 1 / scores.rows)))
    cdf = model.conformal_cdf(later, truth)
    assert cdf.shape == (1000, 1)
    np.testing.assert_array_equal(
        cdf[:, 0] * (scores.rows + 1) + 1e-9 >= math.floor(0.1 * (scores.rows + 1)), truth >= lower
    )
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_interval(later, 0.8), (lower, upper))


def test_several_targets_have_intervals_each(quick):
    X, y = lopsided(80, 0)
    model = BayesNormRegressor(**quick, conformal=True).fit(X, np.stack([y, -100 * y], 1))
    lower, upper = model.predict_interval(X, 0.8)
    assert lower.shape == (80, 2)
    assert ((lower[:, 0] < upper[:, 0]) & (lower[:, 1] < upper[:, 1])).all()
    assert np.median(upper[:, 1] - lower[:, 1]) > 20 * np.median(upper[:, 0] - lower[:, 0])


def test_without_scores_there_is_no_guarantee(quick):
    X, y = lopsided(80, 0)
    quick |= {"folds": None, "epochs": 2, "batch_size": 8, "dropout_rate": 0.0}
    model = BayesNormRegressor(**quick, conformal=True).fit(X, y)
    with pytest.raises(BayesNormError, match=r"Fit it again with conformal=True and folds=5"):
        model.predict_interval(X, 0.8)
