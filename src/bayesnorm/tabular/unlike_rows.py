"""Find unusual rows, and the reasons.

A row is unusual if a column has a value that does not occur in training, if a number or date is clearly outside the
range of training (`ranges.py`), or if the row as a whole is far from all training rows (`likeness.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import quoted
from ..words import DAY, format_day
from .column_types import ColumnValues, Numbers
from .date_column import DateColumn
from .encoded_columns import CategoricalColumn
from .likeness import Likeness
from .preprocessing import Preprocessing, TableColumn
from .ranges import Ranges

# Number of columns named in the reason for a row that is far away as a whole.
MOST_NAMED = 2


def reasons(
    preprocessing: Preprocessing,
    likeness: Likeness,
    ranges: Ranges | None,
    values: Sequence[ColumnValues],
    features: Numbers,
    unseen: Sequence[str],
) -> list[str]:
    """Return for each row the reasons why it is unusual, joined by "; ", or "".

    Args:
        preprocessing: The encoding of the columns.
        likeness: The statistics for comparing whole rows.
        ranges: The ranges of the columns; None for models of earlier versions.
        values: The columns of the rows, from `table_values`.
        features: The features of the rows.
        unseen: For each row the columns with a value that does not occur in training, from the preprocessing.
    """
    found: list[list[str]] = [[] for _ in features]
    strange = np.flatnonzero(np.array(unseen, dtype=object) != "")
    for place, column in enumerate(preprocessing.columns):
        own = values[place]
        if len(strange):
            _, new = column.encode(_as_read(column, own[strange]))
            for row in strange[new]:
                found[row].append(f"{column.name} {_unseen(column, own[row])}")
        known = None if ranges is None else ranges.columns[place]
        if known is None:
            continue
        dated = isinstance(column, DateColumn)
        for rows, word, limit, most in (
            (known.below(own), "before" if dated else "below", known.low, "earliest" if dated else "smallest"),
            (known.above(own), "after" if dated else "above", known.high, "latest" if dated else "largest"),
        ):
            for row in np.flatnonzero(rows):
                found[row].append(f"{column.name} {word} {_shown(column, limit)}, the {most} in training")
    far = np.flatnonzero(likeness.unlike(features) & np.array([not each for each in found]))
    for row, names in zip(far, _farthest(preprocessing, likeness, features[far]), strict=True):
        found[row].append(f"far from all training rows, mainly because of {' and '.join(names)}")
    return ["; ".join(each) for each in found]


def _as_read(column: TableColumn, values: ColumnValues) -> ColumnValues:
    """Return values of `table_values` with days converted back to dates."""
    if not isinstance(column, DateColumn):
        return values
    missing = np.isnan(values)
    found = np.where(missing, 0, np.round(values * DAY)).astype("datetime64[s]")
    found[missing] = np.datetime64("NaT")
    return found


def _unseen(column: TableColumn, value: object) -> str:
    """Return a phrase about a value that does not occur in training."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "is missing, but was never missing in training"
    shown = quoted(value) if isinstance(column, CategoricalColumn) else _shown(column, float(value))  # type: ignore[arg-type]
    if isinstance(column, DateColumn) and column.trend.scale > 0:
        return f"is {shown}, a day of the week that does not occur in training"
    return f"is {shown}, which does not occur in training"


def _shown(column: TableColumn, value: float) -> str:
    """Return a number or date of a column as text."""
    return format_day(value) if isinstance(column, DateColumn) else f"{value:.6g}"


def _farthest(preprocessing: Preprocessing, likeness: Likeness, features: Numbers) -> list[list[str]]:
    """Return for each row the columns with the largest contributions to its distance, largest first."""
    apart = likeness.contributions(features)
    ends = np.cumsum([len(column.features) for column in preprocessing.columns])
    names = [column.name for column in preprocessing.columns]
    shares = np.stack([part.sum(1) for part in np.split(apart, ends, axis=1)[: len(names)]], 1)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :MOST_NAMED]
    return [[names[place] for place in row] for row in order]
