"""The settings that cross-validation compares, by the number of rows.

n is the number of training rows in the smallest fold. A setting is an encoding, layers, dropout rate and weight decay:

| n | settings | batch size | rows seen in training | scouting folds | members for 5 folds |
|---|---|---|---|---|---|
| below 100 | plain 64-64 0 0.03, bins 8 64-64 0 0.03 | below n / 3, at most 16 | 50,000 | 5 | 10 |
| to 500 | plain 128-128 0.1 0.1, bins 16 128-128 0.1 0.1, bins 32 192-192-192 0.1 0.3 | 32 | 120,000 | 5 | 10 |
| to 2,000 | the same | 32 | 120,000 | 2 | 10 |
| to 20,000 | plain 256-256-256 0.1 0.1, fine bins 256-256-256 0.1 0.1 | 128 | 600,000 | 1 | 6 |
| to 60,000 | plain 256-256-256 0.1 0.1, fine bins 256-256-256 0.1 0.1 | 256 | 2,000,000 | 1 | 6 |
| above | plain 256-256 0.1 0.1, bins 16 256-256 0.1 0.1 | 512 | 4,000,000 | 1 | 6 |

Classification with 501 to 20,000 rows also tries the first setting with a weight decay of 2, and the first two settings
with a weight decay of 2 and a dropout rate of 0.5, because noisy labels need more regularisation. A network sees at
most 100 n rows above n = 2,000, and at most 60 n rows above n = 20,000. The number of fine bins is 1,536 divided by the
number of inputs, between 16 and 384.

Every setting is trained on the scouting folds, and the best one on all folds; those networks are the members of the
model. A second round splits the rows into new folds and trains all of them, or only the first. Rows that are held out
in both rounds show how much two members disagree. A given parameter replaces the value in every setting, and several
given values are tried with every setting. The method "dropout" has dropout in place of batch norm, with rates of 0.02,
0.05 and 0.1. If boosted trees and a linear model share the work, networks see three quarters of these rows up to
n = 2,000 (not with `fast`), there are at most 2 scouting folds and 5 folds of the learning curve, and the
second round has one member. This takes half of the time, for a CRPS that was 1 % worse on the training rows of boston.
`fast` uses only the second setting (with a third of the fine bins), half of the rows seen, and 6 members.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# About how many times networks are scored during training.
EVALUATIONS = 40

# Largest number of epochs.
MOST_EPOCHS = 1_000

# Factor by which `fast` makes fine bins coarser.
COARSER = 3

# The name of fine bins before the number of inputs is known, and how many numbers and bins they have.
FINE, FINE_NUMBERS, FINE_BINS = "fine bins", 1_536, (16, 384)


@dataclass(frozen=True)
class Setting:
    """A network for tables and how it is trained.

    Args:
        encoding: Encoding of the inputs, such as "plain", "bins 16" or "waves 8".
        hidden: Units of the hidden layers.
        dropout_rate: Fraction of units that dropout drops in training after each hidden layer.
        weight_decay: Weight decay of AdamW.
        batch_size: Number of rows per training step.
    """

    encoding: str
    hidden: tuple[int, ...]
    dropout_rate: float
    weight_decay: float
    batch_size: int


@dataclass(frozen=True)
class SearchPlan:
    """What cross-validation trains.

    Args:
        settings: The settings to choose from.
        epochs: Number of epochs; with `search`, the largest number.
        search: Whether to choose the number of epochs.
        scouts: Number of folds on which every setting is trained.
        again: Number of folds of the second round that have members.
        curve: Largest number of folds of the learning curve.
    """

    settings: tuple[Setting, ...]
    epochs: int
    search: bool
    scouts: int
    again: int
    curve: int

    @property
    def evaluate_every(self) -> int:
        """Number of epochs between two scores."""
        return max(1, self.epochs // EVALUATIONS)


@dataclass(frozen=True)
class _Size:
    """What is trained on tables of up to `most` rows; see the module's docstring."""

    most: float
    settings: tuple[tuple[str, tuple[int, ...], float, float], ...]
    batch_size: int
    seen: tuple[float, int]  # a multiple of the rows, and an upper limit
    scouts: int
    again: int


_SMALL = (
    ("plain", (128, 128), 0.1, 0.1),
    ("bins 16", (128, 128), 0.1, 0.1),
    ("bins 32", (192, 192, 192), 0.1, 0.3),
)
_LARGE = (("plain", (256, 256, 256), 0.1, 0.1), (FINE, (256, 256, 256), 0.1, 0.1))
_HUGE = (("plain", (256, 256), 0.1, 0.1), ("bins 16", (256, 256), 0.1, 0.1))
_SIZES = (
    _Size(100, (("plain", (64, 64), 0.0, 0.03), ("bins 8", (64, 64), 0.0, 0.03)), 16, (1e9, 50_000), 5, 10**6),
    _Size(500, _SMALL, 32, (1e9, 120_000), 5, 10**6),
    _Size(2_000, _SMALL, 32, (1e9, 120_000), 2, 10**6),
    _Size(20_000, _LARGE, 128, (100, 600_000), 1, 1),
    _Size(60_000, _LARGE, 256, (60, 2_000_000), 1, 1),
    _Size(float("inf"), _HUGE, 512, (60, 4_000_000), 1, 1),
)

# Largest number of folds of the learning curve, by the number of training rows.
CURVE_FOLDS = ((2_000, 10), (20_000, 2), (float("inf"), 1))

# Up to this number of rows, networks that share the work with trees and a linear model are trained less: the share of
# the rows that they see, and the largest numbers of scouting folds and of folds of the learning curve.
SHARED_ROWS, SHARED_SEEN, SHARED_SCOUTS, SHARED_CURVE = 2_000, 0.75, 2, 5

DROPOUT_RATES = (0.02, 0.05, 0.1)

# Additional weight decay and dropout rate for classification, and for how many rows; smaller tables are scored on more
# folds, which takes long enough.
HELD_BACK, HELD_BACK_ROWS = (2.0, 0.5), range(501, 20_001)


CHOICES = ("encoding", "hidden", "batch_size", "weight_decay", "dropout_rate")
"""The parameters of an estimator that replace the values of settings."""

PLANNED = (*CHOICES, "fast", "networks_only", "epochs", "max_epochs")
"""The parameters of an estimator that determine the plan."""


def plan_for(
    rows: int,
    inputs: int,
    *,
    classes: bool = False,
    dropout: bool = False,
    fast: bool = False,
    networks_only: bool = True,
    epochs: int | None = None,
    max_epochs: int | None = None,
    **choices: Any,
) -> SearchPlan:
    """Return what to train for a number of rows and inputs and the given parameters; see the module's docstring."""
    size = next(size for size in _SIZES if rows <= size.most)
    third = 2 ** max(1, int(np.log2(max(2, rows // 3))))
    numbers = FINE_NUMBERS // (COARSER if fast else 1)
    fine = f"bins {min(max(numbers // inputs, FINE_BINS[0]), FINE_BINS[1])}"
    settings = [
        Setting(fine if encoding == FINE else encoding, hidden, rate, decay, batch_size=min(size.batch_size, third))
        for encoding, hidden, rate, decay in size.settings
    ]
    if classes and not dropout and rows in HELD_BACK_ROWS:
        decay, rate = HELD_BACK
        decayed = [replace(setting, weight_decay=decay) for setting in settings[:2]]
        settings += [decayed[0], *(replace(setting, dropout_rate=rate) for setting in decayed)]
    if fast:
        settings = settings[1:2]
    if choices.get("hidden") is not None:
        choices["hidden"] = (tuple(int(units) for units in choices["hidden"]),)
    if dropout and choices.get("dropout_rate") is None:
        choices["dropout_rate"] = DROPOUT_RATES
    values = {name: _several(choices[name]) for name in CHOICES if choices.get(name) is not None}
    settings = [
        replace(setting, **dict(zip(values, chosen, strict=True)))
        for setting in settings
        for chosen in itertools.product(*values.values())
    ]
    seen = min(size.seen[0] * rows, size.seen[1]) / (1 + fast)
    curve = next(folds for most, folds in CURVE_FOLDS if rows <= most)
    if not networks_only and rows <= SHARED_ROWS:
        seen, curve = (seen if fast else SHARED_SEEN * seen), SHARED_CURVE
        size = replace(size, scouts=min(size.scouts, SHARED_SCOUTS), again=1)
    most = max_epochs or int(min(MOST_EPOCHS, max(10, seen // rows)))
    return SearchPlan(
        settings=tuple(dict.fromkeys(settings)),
        epochs=epochs or most,
        search=epochs is None,
        scouts=size.scouts,
        again=1 if fast else size.again,
        curve=curve,
    )


def folds_for(
    rows: int, folds: int, generator: np.random.Generator, classes: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """Return the row numbers of folds of equal size, stratified by class if classes are given."""
    count = min(folds, rows // 2)
    order = generator.permutation(rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    return [np.sort(order[k::count]) for k in range(count)]


def folds_of_groups(groups: NDArray[np.int64], folds: int, generator: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return the row numbers of folds of about equal size; all rows of a group are in the same fold.

    Args:
        groups: The group number of each row.
        folds: Largest number of folds.
        generator: Decides the order of groups of equal size.
    """
    sizes = np.bincount(groups)
    order = generator.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    count = min(folds, len(sizes))
    fold_of, filled = np.empty(len(sizes), np.int64), np.zeros(count, np.int64)
    for group in order:
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    return [np.flatnonzero(fold_of[groups] == k) for k in range(count)]


def _several(value: Any) -> tuple[Any, ...]:
    """Return one value or several as a tuple."""
    return tuple(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else (value,)
