"""Which rows are unlike the training rows: the Mahalanobis distance of their features.

The covariance is Ledoit and Wolf's, which has an inverse however few rows there are. A row is unlike where its distance
exceeds 99.5 % of those that training rows had while they were held out, each measured by the other folds. It sees rows
far from the cloud of training rows or across its directions, not gaps inside the cloud. Only moments are kept, no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

from .column_types import Numbers

# Share of held-out training rows that are not unlike.
QUANTILE = 0.995

# Number of features above which each counts for itself, without covariances.
MOST_CORRELATED = 300

# Least variance of a direction, in standardised features: categories that exclude each other leave some with none.
RIDGE = 1e-6


@dataclass(frozen=True)
class Likeness:
    """Moments of training features, and how far from them is unlike.

    Args:
        mean: Mean of each feature, (features,).
        root: A root of the inverse covariance, (features, features), or (features,) where each counts for itself.
        threshold: The distance above which a row is unlike.
    """

    mean: Numbers
    root: Numbers
    threshold: float

    @classmethod
    def fit(cls, features: Numbers, folds: Sequence[NDArray[np.int64]]) -> Self:
        """Learn from training features (rows, features) and the row numbers of each fold."""
        held_out = []
        for fold in folds:
            others = np.setdiff1d(np.arange(len(features)), fold)
            held_out.append(cls(*_moments(features[others]), 0.0).distance(features[fold]))
        return cls(*_moments(features), float(np.quantile(np.concatenate(held_out), QUANTILE)))

    def distance(self, features: Numbers) -> Numbers:
        """Return root mean squares of deviations in uncorrelated directions: about 1 for rows like training rows."""
        z = features - self.mean
        z = z @ self.root if self.root.ndim == 2 else z * self.root
        return np.sqrt(np.square(z).mean(1))

    def contributions(self, features: Numbers) -> Numbers:
        """Return how much each feature adds to the squares that the distance is made of, (rows, features)."""
        z = features - self.mean
        return z * (z @ self.root @ self.root.T if self.root.ndim == 2 else z * np.square(self.root))

    def unlike(self, features: Numbers) -> NDArray[np.bool_]:
        """Return which rows are unlike those of training."""
        return self.distance(features) > self.threshold


def _moments(features: Numbers) -> tuple[Numbers, Numbers]:
    """Return the mean of features and a root of their inverse covariance; see `Likeness`."""
    if features.shape[1] > MOST_CORRELATED:
        return features.mean(0), 1 / np.sqrt(features.var(0) + RIDGE)
    covariance, _ = ledoit_wolf(features)
    values, vectors = np.linalg.eigh(covariance)
    return features.mean(0), vectors / np.sqrt(np.maximum(values, RIDGE))
