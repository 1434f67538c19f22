"""Detect unusual rows by the Mahalanobis distance of their features from the training rows.

The covariance is the Ledoit-Wolf estimate, which is invertible for any number of rows. A row is unusual if its distance
exceeds 99.5 % of the distances of held-out training rows, each measured with the other folds. This finds rows far from
the training rows or against their correlations, but not gaps between training rows. Only moments are stored, no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

from .column_types import Numbers

# Fraction of held-out training rows that are not unusual.
QUANTILE = 0.995

# With more features, covariances are ignored.
MOST_CORRELATED = 300

# Smallest variance of a direction, in standardised features; one-hot features have directions without variance.
RIDGE = 1e-6


@dataclass(frozen=True)
class Likeness:
    """The moments of the training features, and the threshold for unusual rows.

    Args:
        mean: Mean of each feature, (features,).
        root: A root of the inverse covariance, (features, features), or (features,) if covariances are ignored.
        threshold: The distance above which a row is unusual.
    """

    mean: Numbers
    root: Numbers
    threshold: float

    @classmethod
    def fit(cls, features: Numbers, folds: Sequence[NDArray[np.int64]]) -> Self:
        """Fit to training features, (rows, features), with the row numbers of each fold."""
        held_out = []
        for fold in folds:
            others = np.setdiff1d(np.arange(len(features)), fold)
            held_out.append(cls(*_moments(features[others]), 0.0).distance(features[fold]))
        return cls(*_moments(features), float(np.quantile(np.concatenate(held_out), QUANTILE)))

    def distance(self, features: Numbers) -> Numbers:
        """Return the distance: the root mean square deviation in whitened features, about 1 for training rows."""
        z = features - self.mean
        z = z @ self.root if self.root.ndim == 2 else z * self.root
        return np.sqrt(np.square(z).mean(1))

    def contributions(self, features: Numbers) -> Numbers:
        """Return the contribution of each feature to the squared distance, (rows, features)."""
        z = features - self.mean
        return z * (z @ self.root @ self.root.T if self.root.ndim == 2 else z * np.square(self.root))

    def unlike(self, features: Numbers) -> NDArray[np.bool_]:
        """Return which rows are unusual."""
        return self.distance(features) > self.threshold


def _moments(features: Numbers) -> tuple[Numbers, Numbers]:
    """Return the mean of features and a root of their inverse covariance; see `Likeness`."""
    if features.shape[1] > MOST_CORRELATED:
        return features.mean(0), 1 / np.sqrt(features.var(0) + RIDGE)
    covariance, _ = ledoit_wolf(features)
    values, vectors = np.linalg.eigh(covariance)
    return features.mean(0), vectors / np.sqrt(np.maximum(values, RIDGE))
