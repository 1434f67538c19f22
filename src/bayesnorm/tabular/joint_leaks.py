"""Find leaks that `column_checks.leak` cannot see in one column: equations of several columns, and row numbers.

- **Equations**: the target is (nearly) a sum of multiples of other columns, such as a difference of two dates. A linear
  model finds them, also if a tenth of the rows break the equation.
- **Row numbers of a larger table**: all different whole numbers, evenly spread from about 0, that are associated with
  the target. Then the larger table was sorted by something that knows the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kruskal, kstest, spearmanr

from .column_checks import LEAST_ROWS, MOST_ROWS, NAMES_TIMES, VARIANCE, words_of
from .column_types import ColumnValues, Numbers, is_text
from .dates import days

# Columns that are compared at most, and largest fraction of missing cells of one.
MOST_COLUMNS, MOST_MISSING = 100, 0.1

# Rows for each coefficient at least.
ROWS_PER_COLUMN = 5

# Fraction of rows that have to follow an equation, and how often the others are chosen again.
FOLLOWING, STEPS = 0.9, 10

# Columns of a sum that a sentence writes out.
MOST_NAMED = 6

# Rows from which on row numbers are recognised, and the largest p-value of their association with the target.
LEAST_NUMBERED, ASSOCIATED = 50, 1e-4

# Even row numbers pass the test of Kolmogorov and Smirnov at this level, and begin within this many steps of 0.
EVEN, FIRST_STEPS = 0.05, 20


def joint_leaks(columns: Mapping[str, ColumnValues], y: NDArray[Any], target: str, *, classes: bool) -> dict[str, str]:
    """Return how columns reveal the target together, or number rows, as the end of a sentence "It ...", by name.

    Args:
        columns: The columns that do not reveal the target alone, by name.
        y: The targets of the same rows.
        target: The name of the target.
        classes: Whether the targets are classes.
    """
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    values = {name: days(column[rows]).astype(float) for name, column in columns.items() if not is_text(column)}
    y = y[rows]
    together = {} if classes else _equation(values, y.astype(float), target)
    numbered = {name: column for name, column in values.items() if name not in together}
    return together | {
        name: f"could number the rows of a larger table that was sorted by {target}, or by something related to it"
        for name, column in numbered.items()
        if _numbers_rows(name, column) and _associated(column, y, classes)
    }


def _equation(columns: Mapping[str, Numbers], y: Numbers, target: str) -> dict[str, str]:
    """Return the columns whose sum gives the target."""
    present = {name: column for name, column in columns.items() if np.isnan(column).mean() <= MOST_MISSING}
    names = sorted(present, key=lambda name: -_correlation(present[name], y))[:MOST_COLUMNS]
    if not names:
        return {}
    x = np.stack([present[name] for name in names], 1)
    complete = ~np.isnan(x).any(1)
    x, y = x[complete], y[complete]
    if len(y) < max(LEAST_ROWS, ROWS_PER_COLUMN * (len(names) + 1)) or y.std() == 0:
        return {}
    centre, scale = x.mean(0), x.std(0)
    used = scale > 0
    names = [name for name, varies in zip(names, used, strict=True) if varies]
    x, unit = (x[:, used] - centre[used]) / scale[used], float(y.std())
    targets = (y - y.mean()) / unit
    chosen = list(range(len(names)))
    weights = _fit(x, targets) if chosen else None
    if weights is None:
        return {}
    for place in np.argsort(np.abs(weights), kind="stable").tolist():
        others = [at for at in chosen if at != place]
        if others and (fewer := _fit(x[:, others], targets)) is not None:
            chosen, weights = others, fewer
    terms = [
        (names[at], float(weight) * unit / float(scale[used][at])) for at, weight in zip(chosen, weights, strict=True)
    ]
    how = f"is part of an equation that gives {target} (nearly) exactly: {_sum(terms)}"
    return dict.fromkeys((name for name, _ in terms), how)


def _fit(x: Numbers, y: Numbers) -> Numbers | None:
    """Return the weights of a sum that gives y, (columns,); None if there is none.

    The rows that are farthest from the sum are left out, and the weights are fitted again (least trimmed squares).
    """
    x = np.column_stack([x, np.ones(len(x))])
    rows = np.arange(len(y))
    for _ in range(STEPS):
        weights = np.linalg.lstsq(x[rows], y[rows], rcond=None)[0]
        errors = np.square(y - x @ weights)
        if errors.mean() < 1 - VARIANCE:
            return np.asarray(weights[:-1])
        nearest = np.sort(np.argsort(errors, kind="stable")[: int(np.ceil(FOLLOWING * len(y)))])
        if np.array_equal(nearest, rows):
            break
        rows = nearest
    # What is left must be tiny: without its largest tenth, noise looks smaller than it is.
    return np.asarray(weights[:-1]) if errors[rows].mean() < (1 - VARIANCE) ** 2 else None


def _sum(terms: list[tuple[str, float]]) -> str:
    """Write a sum such as a - b + 2 c."""
    text = ""
    for name, weight in terms[:MOST_NAMED]:
        rounded = float(f"{abs(weight):.3g}")
        factor = "" if rounded == 1 else f"{rounded:g} "
        sign = (" - " if weight < 0 else " + ") if text else ("-" if weight < 0 else "")
        text += f"{sign}{factor}{name}"
    return f"{text} + ..." if len(terms) > MOST_NAMED else text


def _correlation(x: Numbers, y: Numbers) -> float:
    """Return the absolute correlation of two columns; 0 if one is constant."""
    present = ~np.isnan(x)
    x, y = x[present], y[present]
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return 0.0
    return abs(float(((x - x.mean()) / x.std() * ((y - y.mean()) / y.std())).mean()))


def _numbers_rows(name: str, column: Numbers) -> bool:
    """Return whether a column looks like row numbers of a sample of a larger table."""
    rows = len(column)
    if rows < LEAST_NUMBERED or words_of(name) & NAMES_TIMES or np.isnan(column).any():
        return False
    low, high = float(column.min()), float(column.max())
    if (column != np.round(column)).any() or len(np.unique(column)) < rows or high - low < rows:
        return False
    from_zero = 0 <= low <= FIRST_STEPS * (high - low) / rows
    return from_zero and bool(kstest((column - low) / (high - low), "uniform").pvalue > EVEN)


def _associated(column: Numbers, y: NDArray[Any], classes: bool) -> bool:
    """Return whether a column is clearly associated with the target."""
    if not classes:
        return bool(spearmanr(column, y.astype(float)).pvalue < ASSOCIATED)
    labels = np.array([str(label) for label in y], dtype=object)
    parts = [column[labels == label] for label in dict.fromkeys(labels.tolist())]
    return len(parts) > 1 and bool(kruskal(*parts).pvalue < ASSOCIATED)
