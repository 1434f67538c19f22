"""Class probabilities for held-out rows: their scores, those of a simple baseline, and confusions of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from ..metrics import accuracy, brier, classification_targets, ece, nll
from ..predictive import ClassificationPredictive
from .regression import Array, HeldOutArrays, flat

# Most classes in a table of all pairs. With more classes, the page lists the most frequent mistakes.
MOST_CLASSES = 12

# Length of that list.
MOST_PAIRS = 15

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
    """

    accuracy: float
    nll: float
    brier: float
    ece: float


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
        # A class without training rows would give the baseline an infinite NLL.
        shares = np.clip(self.class_shares, 1e-6, None)
        guess = np.tile(shares / shares.sum(), (len(self), 1))
        return {"model": _scores(self.predictive(), self.y), "class_shares": _scores(one_sample(guess), self.y)}


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
    return ClassificationPredictive(torch.from_numpy(np.log(np.clip(probs, 1e-300, None)))[None])


def _scores(predictive: ClassificationPredictive, y: NDArray[np.int64]) -> ClassificationScores:
    """Compute all scores of a predictive."""
    target = torch.from_numpy(y)
    return ClassificationScores(*(float(score(predictive, target)) for score in (accuracy, nll, brier, ece)))
