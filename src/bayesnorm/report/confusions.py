"""Counts of true and predicted classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from .classification import ClassificationTest

# Most classes in a table of all pairs. With more classes, the page lists the most frequent mistakes.
MOST_CLASSES = 12

# Length of that list.
MOST_PAIRS = 15


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
    def of(cls, test: ClassificationTest) -> Self:
        """Count the test rows."""
        counts = np.zeros((len(test.classes), len(test.classes)), dtype=int)
        np.add.at(counts, (test.y, test.label), 1)
        names = test.classes
        matrix = tuple(tuple(row) for row in counts.tolist()) if len(names) <= MOST_CLASSES else None
        mistakes = counts * (1 - np.eye(len(names), dtype=int))
        order = [
            divmod(place, len(names)) for place in np.argsort(-mistakes, axis=None, kind="stable")[:MOST_PAIRS].tolist()
        ]
        worst = tuple(
            (names[true], names[other], int(counts[true, other])) for true, other in order if mistakes[true, other]
        )
        return cls(names, matrix, worst)
