"""Which settings cross-validation looks at, by the number of rows.

With n the rows of the smallest training fold; a setting is an encoding, layers, dropout and weight decay:

| n | settings | batch size | rows that a network sees | folds that choose | members, of 5 folds |
|---|---|---|---|---|---|
| below 100 | plain 64-64 0 .03, bins 8 64-64 0 .03 | below n / 3, at most 16 | 50,000 | 5 | 10 |
| to 500 | plain 128-128 .1 .1, bins 16 128-128 .1 .1, bins 32 192-192-192 .1 .3 | 32 | 120,000 | 5 | 10 |
| to 2,000 | the same | 32 | 120,000 | 2 | 10 |
| to 20,000 | plain 256-256-256 .1 .1, fine bins 256-256-256 .1 .1 | 128 | 600,000 | 1 | 6 |
| to 60,000 | plain 256-256-256 .1 .1, fine bins 256-256-256 .1 .1 | 256 | 2,000,000 | 1 | 6 |
| above | plain 256-256 .1 .1, bins 16 256-256 .1 .1 | 512 | 4,000,000 | 1 | 6 |

Of classes, from 500 to 20,000 rows the first setting is tried with a weight decay of 2, too, and the first two with a
dropout of .5 besides: labels that columns hardly tell want networks that are held back. Rows seen are at most 100 n
from 2,000 on and 60 n from 20,000 on. Fine bins are as many as 1,536 over the inputs, from 16 to 384: trees owe much to
how finely they can part a number.
Every setting is trained on the folds that choose, and the best one on all folds: those networks are the model's
members. A second round has folds of its own, all of them or the first: of rows that are held out in both, two members
that did not see them tell by how much members disagree. What is given is not chosen: a value takes the place of that of
every setting, and several values are tried with each. With method "dropout" networks have dropout in place of batch
norm, of the rates .02, .05 and .1. `fast` has the second setting alone (of bins, fine ones a third as many), half of
the rows seen, and 6 members.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Epochs at the end of which networks are scored, about.
EVALUATIONS = 40

# Epochs that a network is trained at most.
MOST_EPOCHS = 1_000

# How many times coarser fine bins are where time counts.
COARSER = 3

# The encoding of fine bins before the number of inputs is known, and how many numbers and bins it has.
FINE, FINE_NUMBERS, FINE_BINS = "fine bins", 1_536, (16, 384)


@dataclass(frozen=True)
class Setting:
    """A network for tables and how it is trained.

    Args:
        encoding: What becomes of inputs first: "plain", "bins 16" or "waves 8", with how many for each.
        hidden: Units of the hidden layers.
        dropout_rate: Share of units that dropout drops after each of them in training.
        weight_decay: Share by which weights shrink in a step of size 1 (AdamW).
        batch_size: M, rows per step.
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
        epochs: Number of epochs, or the most where `search`.
        search: Whether the number of epochs is to be chosen.
        scouts: Folds that every setting is trained on.
        again: Folds of a second parting of all rows that have members, too.
    """

    settings: tuple[Setting, ...]
    epochs: int
    search: bool
    scouts: int
    again: int

    @property
    def evaluate_every(self) -> int:
        """Epochs between two scores."""
        return max(1, self.epochs // EVALUATIONS)


@dataclass(frozen=True)
class _Size:
    """What is trained on tables up to some number of rows; see the module's text."""

    most: float
    settings: tuple[tuple[str, tuple[int, ...], float, float], ...]
    batch_size: int
    seen: tuple[float, int]  # times the rows, and at most so many
    scouts: int
    again: int


_SMALL = (
    ("plain", (128, 128), 0.1, 0.1),
    ("bins 16", (128, 128), 0.1, 0.1),
    ("bins 32", (192, 192, 192), 0.1, 0.3),
)
_SIZES = (
    _Size(100, (("plain", (64, 64), 0.0, 0.03), ("bins 8", (64, 64), 0.0, 0.03)), 16, (1e9, 50_000), 5, 10**6),
    _Size(500, _SMALL, 32, (1e9, 120_000), 5, 10**6),
    _Size(2_000, _SMALL, 32, (1e9, 120_000), 2, 10**6),
    _Size(
        20_000,
        (
            ("plain", (256, 256, 256), 0.1, 0.1),
            (FINE, (256, 256, 256), 0.1, 0.1),
        ),
        128,
        (100, 600_000),
        1,
        1,
    ),
    _Size(
        60_000,
        (("plain", (256, 256, 256), 0.1, 0.1), (FINE, (256, 256, 256), 0.1, 0.1)),
        256,
        (60, 2_000_000),
        1,
        1,
    ),
    _Size(
        float("inf"),
        (("plain", (256, 256), 0.1, 0.1), ("bins 16", (256, 256), 0.1, 0.1)),
        512,
        (60, 4_000_000),
        1,
        1,
    ),
)

DROPOUT_RATES = (0.02, 0.05, 0.1)

# Weight decay and dropout that networks of classes are tried with besides, and for how many rows: few rows choose by
# more folds, which takes long enough.
HELD_BACK, HELD_BACK_ROWS = (2.0, 0.5), range(501, 20_001)


def plan_for(
    rows: int,
    inputs: int,
    *,
    classes: bool = False,
    dropout: bool = False,
    fast: bool = False,
    encoding: Any = None,
    hidden: Any = None,
    batch_size: Any = None,
    weight_decay: Any = None,
    dropout_rate: Any = None,
    epochs: int | None = None,
    max_epochs: int | None = None,
) -> SearchPlan:
    """Return what to train on so many rows and inputs, as far as it is not given; see the module's text."""
    size = next(size for size in _SIZES if rows <= size.most)
    third = 2 ** max(1, int(np.log2(max(2, rows // 3))))
    numbers = FINE_NUMBERS // (COARSER if fast else 1)
    fine = f"bins {min(max(numbers // inputs, FINE_BINS[0]), FINE_BINS[1])}"
    batch = min(size.batch_size, third)
    known = [Setting(*each, batch_size=batch) for each in size.settings]
    defaults = [replace(each, encoding=fine) if each.encoding == FINE else each for each in known]
    if classes and not dropout and rows in HELD_BACK_ROWS:
        decay, rate = HELD_BACK
        decayed = [replace(each, weight_decay=decay) for each in defaults[:2]]
        defaults += [decayed[0], *(replace(each, dropout_rate=rate) for each in decayed)]
    if fast:
        defaults = defaults[1:2]
    given: dict[str, tuple[Any, ...]] = {
        "encoding": _several(encoding),
        "hidden": () if hidden is None else (tuple(int(units) for units in hidden),),
        "batch_size": _several(batch_size),
        "weight_decay": _several(weight_decay),
        "dropout_rate": _several(dropout_rate) or (DROPOUT_RATES if dropout else ()),
    }
    names = [name for name, values in given.items() if values]
    settings = [
        replace(setting, **dict(zip(names, values, strict=True)))
        for setting in defaults
        for values in itertools.product(*(given[name] for name in names))
    ]
    seen = min(size.seen[0] * rows, size.seen[1]) / (1 + fast)
    most = max_epochs or int(min(MOST_EPOCHS, max(10, seen // rows)))
    return SearchPlan(
        settings=tuple(dict.fromkeys(settings)),
        epochs=epochs or most,
        search=epochs is None,
        scouts=size.scouts,
        again=1 if fast else size.again,
    )


def folds_for(
    rows: int, folds: int, generator: np.random.Generator, classes: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """Return row numbers of folds of equal sizes; classes, where given, are spread evenly."""
    count = min(folds, rows // 2)
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
    count = min(folds, len(sizes))
    fold_of, filled = np.empty(len(sizes), np.int64), np.zeros(count, np.int64)
    for group in order:
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    return [np.flatnonzero(fold_of[groups] == k) for k in range(count)]


def _several(value: Any) -> tuple[Any, ...]:
    """Return one value or several as a tuple, which is empty where None was given."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else (value,)
