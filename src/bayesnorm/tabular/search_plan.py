"""Which settings cross-validation looks at, by the number of rows.

With n the rows of the smallest training fold:

| n | training batch sizes | weight decays | most epochs |
|---|---|---|---|
| below 100 | the power of 2 below n / 3, at most 16 | 1e-1, 1e-3 | 300 |
| to 2,000 | 32 and that, at most 128 | 1e-1, 1e-2, 1e-3, 1e-4 | 500,000 / n, from 300 to 1,000 |
| to 8,000 | 32 and 128 | 1e-2, 1e-3, 1e-5 | 300 |
| to 20,000 | 64 and 256 | 1e-3, 1e-5 | 2,500,000 / n |
| above | 128 and 512 | 1e-3, 1e-5 | 2,500,000 / n, at least 20 |

With dropout: weight decays 1e-4 and 1e-6, and rates .01, .05 and .1, in batches of the smaller size. Above 20,000 rows
there are at most 3 folds. Scores are taken a hundred times in the most epochs, and training stops after a fifth of them
without a better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Number of rows above which 3 folds are enough.
MOST_FOLDED = 20_000

# Rows that one network of a small or a large table sees in all its epochs.
ROWS_SEEN, MOST_ROWS_SEEN = 500_000, 2_500_000


@dataclass(frozen=True)
class SearchPlan:
    """Settings that cross-validation trains.

    Args:
        batch_sizes, weight_decays, dropout_rates: Values to combine; a network without dropout has the one rate None.
        epochs: Number of epochs, or the most where `search`.
        search: Whether the number of epochs is to be chosen.
        evaluate_every: Epochs between two scores.
        patience: Scores without improvement before training stops.
    """

    batch_sizes: tuple[int, ...]
    weight_decays: tuple[float, ...]
    dropout_rates: tuple[float | None, ...]
    epochs: int
    search: bool
    evaluate_every: int
    patience: int

    @property
    def settings(self) -> int:
        """Number of settings, all values combined."""
        return len(self.batch_sizes) * len(self.weight_decays) * len(self.dropout_rates)


def plan_for(
    rows: int,
    *,
    dropout: bool,
    batch_size: Any = None,
    weight_decay: Any = None,
    dropout_rate: Any = None,
    epochs: int | None = None,
    max_epochs: int | None = None,
    patience: int | None = None,
) -> SearchPlan:
    """Return what to train on so many rows, as far as it is not given; see the module's text."""
    third = 2 ** max(1, int(np.log2(max(2, rows // 3))))
    sizes: tuple[int, ...]
    decays: tuple[float, ...]
    if rows < 100:
        sizes, decays, most = (min(16, third),), (1e-1, 1e-3), 300
    elif rows <= 2_000:
        sizes, decays = (32, min(128, third)), (1e-1, 1e-2, 1e-3, 1e-4)
        most = min(1_000, max(300, ROWS_SEEN // rows))
    elif rows <= 8_000:
        sizes, decays, most = (32, 128), (1e-2, 1e-3, 1e-5), 300
    elif rows <= 20_000:
        sizes, decays, most = (64, 256), (1e-3, 1e-5), MOST_ROWS_SEEN // rows
    else:
        sizes, decays, most = (128, 512), (1e-3, 1e-5), max(20, MOST_ROWS_SEEN // rows)
    rates: tuple[float | None, ...] = (None,)
    if dropout:
        sizes, decays, rates = sizes[:1], (1e-4, 1e-6), _given_or(dropout_rate, (0.01, 0.05, 0.1))
    most = max_epochs or most
    every = max(1, most // 100)
    waited = patience or max(1, most // 5)
    return SearchPlan(
        batch_sizes=tuple(dict.fromkeys(_given_or(batch_size, sizes))),
        weight_decays=_given_or(weight_decay, decays),
        dropout_rates=rates,
        epochs=epochs or most,
        search=epochs is None,
        evaluate_every=every,
        patience=-(-waited // every),
    )


def folds_for(
    rows: int, folds: int, generator: np.random.Generator, classes: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """Return row numbers of folds of equal sizes; classes, where given, are spread evenly."""
    count = min(folds, rows // 2, 3 if rows > MOST_FOLDED else folds)
    order = generator.permutation(rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    return [np.sort(order[k::count]) for k in range(count)]


def folds_of_groups(groups: NDArray[np.int64], folds: int, generator: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return row numbers of folds of about equal sizes; all rows of a group are in one of them.

    Args:
        groups: The number of each row's group.
        folds: How many folds there are to be, at most.
        generator: Which of two groups of one size comes first is left to it.
    """
    sizes = np.bincount(groups)
    order = generator.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    count = min(folds, len(sizes), 3 if len(groups) > MOST_FOLDED else folds)
    fold_of, filled = np.empty(len(sizes), np.int64), np.zeros(count, np.int64)
    for group in order:
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    return [np.flatnonzero(fold_of[groups] == k) for k in range(count)]


def _given_or(value: Any, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return one value or several as a tuple, or another tuple where None was given."""
    if value is None:
        return otherwise
    return tuple(value) if isinstance(value, Sequence | np.ndarray) else (value,)
