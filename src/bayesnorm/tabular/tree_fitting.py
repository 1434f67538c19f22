"""Fit boosted trees with scikit-learn's histogram gradient boosting, one model for each fold.

Every setting is fitted once for each fold, with more trees than needed. Its score after every few trees on held-out
rows, which are those of all folds together, chooses the setting and the number of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from .column_types import Numbers
from .trees import BoostedTrees

Rows = NDArray[np.int64]

# Number of boosting steps between two scores, and the largest numbers of steps for locations and for scales.
EVERY, STEPS, SCALE_STEPS = 10, (200, 400), 100

# Largest number of trees of a model, whatever the number of classes.
MOST_TREES = 2_000

# The smallest absolute error counts as this fraction of the mean, because its logarithm is predicted.
LEAST_ERROR = 1e-3


@dataclass(frozen=True)
class TreeSetting:
    """The size of trees and the learning rate.

    Args:
        leaves: Largest number of leaves of a tree.
        least_rows: Smallest number of training rows of a leaf.
        rate: The learning rate.
    """

    leaves: int
    least_rows: int
    rate: float


_SCALE = TreeSetting(4, 20, 0.05)


@dataclass(frozen=True, eq=False)
class FoldRows:
    """What all models of a table share.

    Args:
        x: Features, (rows, features).
        train_rows, test_rows: The rows of each fold.
        used: Which features each fold may use, (folds, features); None for all.
        weights: Weight of each row; None for equal weights.
        seed: Seed of the fits.
    """

    x: Numbers
    train_rows: Sequence[Rows]
    test_rows: Sequence[Rows]
    used: NDArray[np.bool_] | None
    weights: Numbers | None
    seed: int

    def features(self, fold: int, rows: Rows) -> Numbers:
        """Return the features of rows for the model of a fold; features that it may not use are 0."""
        return self.x[rows] * self.may_use(fold) if self.used is not None else self.x[rows]

    def may_use(self, fold: int) -> NDArray[np.bool_]:
        """Return which features the model of a fold may use, (features,)."""
        return np.ones(self.x.shape[1], bool) if self.used is None else self.used[fold]

    def weights_of(self, rows: Rows) -> Numbers | None:
        """Return the weights of rows."""
        return None if self.weights is None else self.weights[rows]

    @property
    def held_out(self) -> Rows:
        """All held-out rows, fold by fold."""
        return np.concatenate(self.test_rows)


def settings_for(rows: int) -> tuple[TreeSetting, ...]:
    """Return the settings to compare for a number of training rows."""
    if rows < 300:
        return TreeSetting(4, 3, 0.1), TreeSetting(8, 8, 0.1)
    if rows < 3_000:
        return TreeSetting(6, 5, 0.07), TreeSetting(20, 10, 0.05)
    if rows < 30_000:
        return TreeSetting(8, 20, 0.1), TreeSetting(31, 20, 0.1)
    return (TreeSetting(63, 20, 0.1),)


def _steps(train: Rows) -> int:
    """Return the number of boosting steps for training rows."""
    return STEPS[len(train) >= 300]


def fit_locations(rows: FoldRows, y: Numbers) -> list[BoostedTrees]:
    """Return a model of the targets, (rows, targets), for each fold."""

    def fit(fold: int, setting: TreeSetting) -> BoostedTrees:
        train = rows.train_rows[fold]
        parts = [
            _regression(rows, fold, train, column[train], setting, _steps(train), "squared_error") for column in y.T
        ]
        return _joined(parts)

    def score(predicted: Numbers, test: Rows) -> Numbers:
        return np.abs(predicted - y[test]).mean(-1)

    return _best(rows, settings_for(len(rows.train_rows[0])), fit, score)


def fit_log_scales(rows: FoldRows, errors: Numbers) -> list[BoostedTrees]:
    """Return a model of the logarithm of absolute errors, (rows, targets), for each fold; it may have no tree."""
    scale = errors.mean(0).clip(np.finfo(float).tiny)
    y = np.maximum(errors / scale, LEAST_ERROR)

    def fit(fold: int, setting: TreeSetting) -> BoostedTrees:
        train = rows.train_rows[fold]
        return _joined([_regression(rows, fold, train, column[train], setting, SCALE_STEPS, "gamma") for column in y.T])

    def score(predicted: Numbers, test: Rows) -> Numbers:
        return np.asarray((predicted + y[test] * np.exp(-predicted)).mean(-1))

    models = _best(rows, (_SCALE,), fit, score)
    return [BoostedTrees(**{**model.arrays(), "baseline": model.baseline + np.log(scale)}) for model in models]


def fit_logits(rows: FoldRows, y: Rows, classes: int) -> list[BoostedTrees]:
    """Return a model of the logits of all classes for each fold, from class numbers, (rows,)."""

    def fit(fold: int, setting: TreeSetting) -> BoostedTrees:
        return _classification(rows, fold, y[rows.train_rows[fold]], classes, setting)

    def score(predicted: Numbers, test: Rows) -> Numbers:
        log_probs = log_softmax(predicted, -1)
        return np.asarray(-np.take_along_axis(log_probs, y[test][None, :, None], -1)[..., 0])

    return _best(rows, settings_for(len(rows.train_rows[0])), fit, score)


def _best(
    rows: FoldRows,
    settings: Sequence[TreeSetting],
    fit: Callable[[int, TreeSetting], BoostedTrees],
    score: Callable[[Numbers, Rows], Numbers],
) -> list[BoostedTrees]:
    """Return the models of the best setting, with the best number of trees.

    Args:
        rows: The rows of each fold.
        settings: The settings to compare.
        fit: A function from a fold and a setting to a model.
        score: A function from predictions, (steps, rows, outputs), and row numbers to scores, (steps, rows).
    """
    results = []
    for setting in settings:
        models = [fit(fold, setting) for fold in range(len(rows.test_rows))]
        paths = [
            score(model.paths(rows.features(fold, test), EVERY * model.trees_per_step), test)
            for fold, (model, test) in enumerate(zip(models, rows.test_rows, strict=True))
        ]
        # A fold whose rows have one class has no trees, so that its scores are those of 0 steps.
        steps = min((len(path) for path in paths if len(path) > 1), default=1)
        scores = np.concatenate([path[:steps] if len(path) > 1 else path.repeat(steps, 0) for path in paths], 1)
        means = np.average(scores, 1, rows.weights_of(rows.held_out))
        step = int(means.argmin())
        results.append((means[step], step, models))
    _, step, models = min(results, key=lambda result: result[0])
    return [model.first(step * EVERY * model.trees_per_step) for model in models]


def _regression(
    rows: FoldRows, fold: int, train: Rows, y: Numbers, setting: TreeSetting, steps: int, loss: str
) -> BoostedTrees:
    model = HistGradientBoostingRegressor(loss=loss, max_iter=steps, **_options(setting, rows.seed))
    model.fit(rows.features(fold, train), y, rows.weights_of(train))
    return _plain(model, [0])


def _classification(rows: FoldRows, fold: int, y: Rows, classes: int, setting: TreeSetting) -> BoostedTrees:
    train = rows.train_rows[fold]
    present, numbers = np.unique(y, return_inverse=True)
    # A class without training rows gets the share of half a row.
    absent = np.full(classes, np.log(0.5 / len(y)))
    if len(present) < 2:
        absent[present] = 0.0
        return BoostedTrees.from_nodes([], [], absent)
    steps = min(_steps(train), max(EVERY, MOST_TREES // len(present)))
    model = HistGradientBoostingClassifier(max_iter=steps, **_options(setting, rows.seed))
    model.fit(rows.features(fold, train), numbers, rows.weights_of(train))
    trees = _plain(model, [int(present[1])] if len(present) == 2 else present.tolist())
    baseline = absent
    baseline[present] = [0.0, float(trees.baseline[0])] if len(present) == 2 else trees.baseline
    return BoostedTrees(**{**trees.arrays(), "baseline": baseline})


def _options(setting: TreeSetting, seed: int) -> dict[str, Any]:
    return {
        "learning_rate": setting.rate,
        "max_leaf_nodes": setting.leaves,
        "min_samples_leaf": setting.least_rows,
        "l2_regularization": 1.0,
        "early_stopping": False,
        "random_state": seed,
    }


def _plain(model: Any, outputs: list[int]) -> BoostedTrees:
    """Return the trees of a fitted model of scikit-learn."""
    nodes = [predictor.nodes for step in model._predictors for predictor in step]
    baseline = np.array(model._baseline_prediction, dtype=np.float64).reshape(-1)
    return BoostedTrees.from_nodes(nodes, outputs * len(model._predictors), baseline)


def _joined(parts: Sequence[BoostedTrees]) -> BoostedTrees:
    """Return models of one target each as a model of all targets; each step has one tree of each model."""
    if len(parts) == 1:
        return parts[0]
    count, sizes = len(parts[0].root), [np.diff(part.root, append=len(part.feature)) for part in parts]
    pieces: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "right", "value")}
    root, output, at = [], [], 0
    for step in range(count):
        for number, part in enumerate(parts):
            start, size = int(part.root[step]), int(sizes[number][step])
            for name, arrays in pieces.items():
                values = getattr(part, name)[start : start + size]
                arrays.append(values + (at - start) if name == "right" else values)
            root.append(at)
            output.append(number)
            at += size
    baseline = np.concatenate([part.baseline for part in parts])
    joined = {name: np.concatenate(values) if values else getattr(parts[0], name) for name, values in pieces.items()}
    return BoostedTrees(root=np.array(root, np.int32), output=np.array(output, np.int32), baseline=baseline, **joined)
