"""Class probabilities for held-out rows: their scores, those of a simple baseline, and confusions of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from ..metrics import accuracy, aupr, auroc, brier, classification_targets, ece, nll
from ..predictive import ClassificationPredictive
from .regression import Array, HeldOutArrays, flat

# Most classes in a table of all pairs. With more classes, the page lists the most frequent mistakes.
MOST_CLASSES = 12

# Length of that list.
MOST_PAIRS = 15

# Smaller probabilities count as this, because their logarithm could be infinite.
LEAST_PROBABILITY = 1e-300

# Number of times that labels are sampled from the probabilities of the model, to compute the ECE by chance.
REPEATS = 100


@dataclass(frozen=True)
class ClassificationScores:
    """Scores over the test rows.

    Args:
        accuracy: Share of rows whose most probable class is right; higher is better.
        nll: Negative log likelihood, in nats; lower is better.
        brier: Summed squared distance from the true class, 0 to 2; lower is better.
        ece: Expected calibration error over 15 bins, 0 to 1; lower is better.
        auc: Area under the ROC curve, 0.5 by chance; higher is better. With more than two classes, the mean over the
            classes, each against all others and weighted by its rows. None if all rows have one class.
        precision: Average precision, the area under the precision-recall curve: of the class that is rarer in training
            or, with more than two, the mean over the classes as for the AUC. Higher is better.
    """

    accuracy: float
    nll: float
    brier: float
    ece: float
    auc: float | None = None
    precision: float | None = None


@dataclass(frozen=True)
class ClassificationTest(HeldOutArrays):
    """Predictions for N held-out rows of C classes, and their true classes.

    Args:
        y: Class numbers, (N,).
        probs: Predictive probabilities, (N, C).
        entropy: Entropy of the predictive in nats, (N,).
        mutual_information: Its epistemic part, the disagreement of the samples, (N,); None without samples.
        classes: Names of the classes.
        class_shares: Shares of the classes in the training rows, (C,), for the baseline.
        unusual: Mask of the rows that are unusual compared with the training data, (N,); None if unknown.
    """

    y: NDArray[np.int64]
    probs: Array
    entropy: Array
    mutual_information: Array | None
    classes: tuple[str, ...]
    class_shares: Array
    unusual: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        probs, y = np.asarray(self.probs, dtype=np.float64), np.asarray(self.y)
        rows, classes = len(y), len(self.classes)
        if rows == 0 or probs.shape != (rows, classes) or np.abs(probs.sum(1) - 1).max() > 1e-3 or (probs < 0).any():
            raise InputError(
                f"probs must have shape ({max(rows, 1)}, {classes}), one column for each name in classes, with rows "
                f"of probabilities that add up to 1. Got shape {probs.shape}."
            )
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= classes:
            raise InputError(
                f"y must contain whole numbers from 0 to {classes - 1}, one per row, got {y.dtype} of shape {y.shape}."
            )
        object.__setattr__(self, "y", y.astype(np.int64))
        object.__setattr__(self, "probs", probs)
        self._hold(rows, "entropy", "mutual_information")
        self._hold(classes, "class_shares")
        self._hold_unusual(rows)

    @classmethod
    def from_predictive(
        cls, predictive: ClassificationPredictive, y: Any, *, classes: Sequence[str], train_y: Any, unusual: Any = None
    ) -> Self:
        """Make a test from predictions for held-out rows.

        Args:
            predictive: One distribution over classes per row.
            y: Test classes, as numbers.
            classes: Names of the classes.
            train_y: Training classes, as numbers.
            unusual: Mask of the rows that are unusual compared with the training data, (N,); None if unknown.
        """
        target, scored = classification_targets(predictive, y, None)
        if not bool(scored.all()):
            raise InputError(
                f"y has {int((~scored).sum())} labels of {len(target)} that stand for no class (ignore_index). Pass "
                "only rows with a class."
            )
        counts = np.bincount(np.asarray(train_y, dtype=np.int64).reshape(-1), minlength=len(classes))
        return cls(
            y=target.cpu().numpy(),
            probs=predictive.probs.detach().double().cpu().numpy(),
            entropy=flat(predictive.entropy),
            mutual_information=flat(predictive.mutual_information),
            classes=tuple(str(name) for name in classes),
            class_shares=counts / counts.sum(),
            unusual=unusual,
        )

    @property
    def label(self) -> NDArray[np.int64]:
        """The most probable class of every row."""
        return np.asarray(self.probs.argmax(1))

    @property
    def confidence(self) -> Array:
        """The probability of the most probable class of every row."""
        return np.asarray(self.probs.max(1))

    @property
    def right(self) -> NDArray[np.bool_]:
        """Mask of the rows whose most probable class is the true one."""
        return self.label == self.y

    @property
    def majority(self) -> int:
        """The most common class in training."""
        return int(self.class_shares.argmax())

    @property
    def uncertainty(self) -> Array:
        """The uncertainty by which rows are ranked: the predictive entropy."""
        return self.entropy

    def rows_by_class(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of rows of every class, and how many of them are right."""
        classes = len(self.classes)
        return np.bincount(self.y, minlength=classes), np.bincount(self.y[self.right], minlength=classes)

    def auc_of(self, name: str) -> float | None:
        """Return the AUC of a class against all others; None if all rows or none have it."""
        number = self.classes.index(name)
        true = self.y == number
        if true.all() or not true.any():
            return None
        return float(auroc(self.probs[~true, number], self.probs[true, number]))

    def never_found(self) -> dict[str, int]:
        """Return the classes of which no row is predicted correctly, the most frequent first, and their rows."""
        rows, right = self.rows_by_class()
        return {self.classes[at]: int(rows[at]) for at in np.argsort(-rows) if rows[at] and not right[at]}

    def predictive(self) -> ClassificationPredictive:
        """Return the probabilities as a predictive with one sample."""
        return one_sample(self.probs)

    def ece_by_chance(self) -> float:
        """Return the mean ECE of the model if labels were sampled from its probabilities."""
        generator, predictive, edges = np.random.default_rng(0), self.predictive(), self.probs.cumsum(1)
        samples = generator.random((REPEATS, len(self), 1)) * edges[None, :, -1:]
        return float(np.mean([float(ece(predictive, torch.from_numpy((sample > edges).sum(1)))) for sample in samples]))

    def scores(self) -> dict[str, ClassificationScores]:
        """Return scores of the "model", and of the "class_shares" in training used as probabilities for every row."""
        shares = np.tile(self._shares, (len(self), 1))
        return {"model": self.scores_of(self.probs), "class_shares": self.scores_of(shares)}

    def scores_of(self, probs: Array) -> ClassificationScores:
        """Return the scores of class probabilities (N, C) for the test rows."""
        predictive, target = one_sample(probs), torch.from_numpy(self.y)
        right, likelihood, squares, gap = (float(score(predictive, target)) for score in (accuracy, nll, brier, ece))
        return ClassificationScores(right, likelihood, squares, gap, *self._ranking_scores(probs))

    def _ranking_scores(self, probs: Array) -> tuple[float | None, float | None]:
        """Return the AUC and the average precision."""
        counts = np.bincount(self.y, minlength=len(self.classes))
        tested = [number for number in np.flatnonzero(counts) if counts[number] < len(self)]
        if len(self.classes) == 2:
            tested = [number for number in tested if number == int(self.class_shares.argmin())]
        if not tested:
            return None, None
        parts = []
        for number in tested:
            inside, outside = probs[self.y != number, number], probs[self.y == number, number]
            parts.append([float(score(inside, outside)) for score in (auroc, aupr)])
        area, precision = np.average(parts, axis=0, weights=counts[tested])
        return float(area), float(precision)

    @property
    def _shares(self) -> Array:
        """The class shares in training; a class without training rows would give them an infinite NLL."""
        shares = np.clip(self.class_shares, 1e-6, None)
        return np.asarray(shares / shares.sum())

    def nll_points(self, probs: Array | None = None) -> Array:
        """Return the negative log likelihood of every row, of the model or of other class probabilities (N, C)."""
        probs = self.probs if probs is None else probs
        return -np.log(np.clip(probs[np.arange(len(self)), self.y], LEAST_PROBABILITY, None))

    def share_nll_points(self) -> Array:
        """Return the negative log likelihood of every row for the class shares in training."""
        return -np.log(self._shares[self.y])


@dataclass(frozen=True)
class Confusions:
    """Held-out rows by true and predicted class.

    Args:
        classes: Names of the classes.
        matrix: Counts by true class, then by predicted class; None if there are too many classes.
        most_frequent: Mistakes as (true, predicted, rows), the most frequent first.
    """

    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...] | None
    most_frequent: tuple[tuple[str, str, int], ...]

    @classmethod
    def from_test(cls, test: ClassificationTest) -> Self:
        """Count the test rows."""
        counts = np.zeros((len(test.classes), len(test.classes)), dtype=int)
        np.add.at(counts, (test.y, test.label), 1)
        names = test.classes
        matrix = tuple(tuple(row) for row in counts.tolist()) if len(names) <= MOST_CLASSES else None
        mistakes = counts * (1 - np.eye(len(names), dtype=int))
        worst = np.argsort(-mistakes, axis=None, kind="stable")[:MOST_PAIRS]
        pairs = zip(*(part.tolist() for part in np.unravel_index(worst, counts.shape)), strict=True)
        return cls(names, matrix, tuple((names[i], names[j], int(counts[i, j])) for i, j in pairs if mistakes[i, j]))


def one_sample(probs: Array) -> ClassificationPredictive:
    """Return class probabilities (N, C) as a predictive with one sample."""
    return ClassificationPredictive(torch.from_numpy(np.log(np.clip(probs, LEAST_PROBABILITY, None)))[None])
