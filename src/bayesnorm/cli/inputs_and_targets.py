"""The columns of `bayesnorm fit`: how they are read, which inputs are left out and why, and the task of the target."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from .cells import as_labels
from .file_columns import convert_columns
from .fit_options import DATES, FitOptions, Task
from .table_source import Source
from .tables import TableFile
from .written_dates import DateFormat, detect_date_formats
from .written_numbers import NumberFormat, detect_number_formats, mixed_marks

if TYPE_CHECKING:
    from ..tabular import column_types

# Whole numbers with at most this many different values are classes.
FEW_VALUES = 10

# Smallest number of rows for training and testing.
LEAST_ROWS = 12

# Floats represent all whole numbers below this one exactly.
EXACT = 2**53


@dataclass(frozen=True)
class ColumnFormats:
    """How the columns of a table are read.

    Args:
        file: The table.
        categorical: Columns to read as categories.
        forgiving: Columns of numbers or dates in which unreadable cells count as empty.
        numbers: The number formats of columns with a currency, percent sign or the like.
        dates: The date formats of columns.
        unread: Columns with dates in several formats, and a reason that completes the sentence "It ...".
    """

    file: TableFile
    categorical: frozenset[str]
    forgiving: frozenset[str]
    numbers: dict[str, NumberFormat]
    dates: dict[str, DateFormat]
    unread: dict[str, str]

    @classmethod
    def detect(cls, frame: Any, file: TableFile, names: Sequence[str], options: FitOptions) -> ColumnFormats:
        """Detect how to read the columns of a table, unless the options say it.

        Args:
            frame: The whole table.
            file: The table's file.
            names: The input columns.
            options: The options of the user.
        """
        kinds = options.read_as
        unconverted = {*options.categorical, *(name for name, kind in kinds.items() if kind in ("category", "text"))}
        date_options = {name: kind for name, kind in kinds.items() if kind in DATES}
        no_dates = {*unconverted, *(name for name, kind in kinds.items() if kind == "number")}
        candidates = [name for name in names if name not in no_dates]
        dates, unread = detect_date_formats(frame, candidates, date_options, file.source)
        others = [name for name in (options.target, *names) if name not in dates]
        return cls(
            file,
            frozenset(unconverted - {name for name, kind in kinds.items() if kind == "text"}),
            frozenset(name for name, kind in kinds.items() if kind in ("number", *DATES)),
            detect_number_formats(frame[others], file.decimal, unconverted),
            dates,
            {name: reason for name, reason in unread.items() if name not in options.keep},
        )

    def read(self, frame: Any) -> tuple[Any, dict[str, column_types.Kind]]:
        """Return columns of the table as numbers, text or dates, and the kind of each column."""
        return convert_columns(
            frame,
            self.file.source,
            categorical=self.categorical,
            forgiving=self.forgiving,
            decimal=self.file.decimal,
            numbers=self.numbers,
            dates=self.dates,
        )


@dataclass(frozen=True)
class TrainingInputs:
    """The input columns of the model.

    Args:
        frame: A data frame of numbers, text and dates whose index holds the row numbers in the file.
        kinds: The kind of each column.
        left_out: Columns that are left out, and a reason that completes the sentence "It ...".
        messages: Sentences for the user.
    """

    frame: Any
    kinds: dict[str, column_types.Kind]
    left_out: dict[str, str]
    messages: list[str] = field(default_factory=list)


def read_inputs(
    frame: Any, names: Sequence[str], formats: ColumnFormats, options: FitOptions, left_out: Mapping[str, str]
) -> TrainingInputs:
    """Return the input columns, or raise an error if none is left.

    Args:
        frame: The training rows.
        names: The candidates for inputs.
        formats: How columns are read.
        options: The options of the user.
        left_out: Columns that are left out for other reasons, and the reasons.
    """
    from ..tabular import column_checks, column_types

    reasons = dict(left_out)
    reasons |= {
        name: "is read as text (--as)"
        for name in names
        if options.read_as.get(name) == "text" and name not in options.keep
    }
    reasons |= formats.unread
    reasons |= {
        name: "contains durations, which are not supported; convert them to numbers, such as days"
        for name in names
        if name not in options.read_as and column_types.contents_of(frame[name]) == "durations"
    }
    inputs, kinds = formats.read(frame[[name for name in names if name not in reasons]])
    protected = {*options.keep, *options.categorical, *options.read_as}
    free = [name for name in inputs if name not in protected]
    mixed = {name: mixed_marks(frame[name], formats.file.decimal) for name in free if kinds[name] == "category"}
    reasons |= {name: reason for name, reason in mixed.items() if reason}
    inputs = inputs[[name for name in inputs if name not in reasons]]
    reasons |= _uninformative_columns(inputs, protected)
    inputs = inputs[[name for name in inputs if name not in reasons]]
    if not len(inputs.columns):
        listed_reasons = ", ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise InputError(
            f"{formats.file.source} has no column to predict from ({listed_reasons}). Add one, or use --keep COLUMN."
        )
    messages = [
        f"{name} was left out: it {reason}."
        + (
            f" (Use --keep {shlex.quote(name)} to include it.)"
            if (name in kinds and reason != column_checks.EMPTY) or name in left_out
            else ""
        )
        for name, reason in reasons.items()
    ]
    for name in sorted(formats.forgiving):
        if name in inputs and (cells := int((inputs[name].isna() & frame[name].notna()).sum())):
            what = "date" if kinds[name] == "date" else "number"
            many = f"{cells:,} cells of {name} are not {what}s and count"
            messages.append(f"{many if cells > 1 else f'1 cell of {name} is not a {what} and counts'} as empty (--as).")
    messages += [line for name in inputs if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    messages += [
        line for name, date_format in formats.dates.items() if name in inputs and (line := date_format.describe(name))
    ]
    return TrainingInputs(inputs, {name: kinds[name] for name in inputs}, reasons, messages)


def guess_task(name: str, values: NDArray[Any], kind: column_types.Kind) -> tuple[Task, str]:
    """Guess regression for numbers, classification for text and for few different whole numbers; return the reason too.

    Args:
        name: Name of the target.
        values: Its values, without missing ones.
        kind: The kind of the column.
    """
    distinct = len(np.unique(as_labels(values) if kind == "category" else values))
    if kind == "category":
        return (Task.classification, f"{name} is text with {distinct} different values")
    whole = bool((values == np.round(values)).all())
    if distinct <= 2 or (whole and distinct <= FEW_VALUES and len(values) >= 5 * distinct):
        return (Task.classification, f"{name} has only {distinct} different values")
    return (Task.regression, f"{name} is numeric with {distinct} different values")


def require_targets(
    path: Path | Source, name: str, values: NDArray[Any], kind: column_types.Kind, task: Task
) -> NDArray[Any]:
    """Return the targets as numbers or labels, or raise an error if they cannot be learned.

    Args:
        path: The file of the table, for messages.
        name: Name of the target.
        values: Its values, without missing ones.
        kind: The kind of the column.
        task: Regression or classification.
    """
    if len(values) < LEAST_ROWS:
        have = "1 row has" if len(values) == 1 else f"{len(values)} rows have"
        raise InputError(f"{path}: only {have} a value in {quoted(name)}. Pass at least {LEAST_ROWS} such rows.")
    if task is Task.regression and kind == "category":
        raise InputError(
            f"--task regression needs numbers, but {quoted(name)} contains text such as {quoted(values[0])}. Use "
            "--task classification."
        )
    if len(np.unique(as_labels(values))) == 1:
        same = quoted(values[0]) if kind == "category" else f"{values[0]:.10g}"
        raise InputError(
            f"--target: {quoted(name)} is {same} in every row, so there is nothing to predict. Choose another column."
        )
    if task is Task.regression:
        from ..tabular import LARGEST_TARGET

        far = np.abs(values) > LARGEST_TARGET
        if far.any():
            raise InputError(
                f"--target: {quoted(name)} contains {values[far][0]:g}, but the largest accepted number is "
                f"{LARGEST_TARGET:g}. Rescale the column."
            )
        return values
    labels = np.unique(as_labels(values))
    if len(labels) > max(FEW_VALUES, len(values) / 2):
        raise InputError(
            f"--target: {quoted(name)} has {len(labels)} different values in {len(values)} rows, too many for classes. "
            "Choose another column, or use --task regression for numbers."
        )
    if kind == "number" and bool(((values == np.round(values)) & (np.abs(values) < EXACT)).all()):
        return values.astype(np.int64)
    return as_labels(values)


def _uninformative_columns(inputs: Any, protected: Collection[str]) -> dict[str, str]:
    """Return the columns without information, and why; if all columns are such, numbers stay.

    Args:
        inputs: A data frame of numbers, text and dates.
        protected: Columns that always stay.
    """
    from ..tabular import column_checks

    rows = inputs.index.to_numpy()
    verdicts = {
        name: column_checks.why_no_feature(name, inputs[name].to_numpy(), rows)
        for name in inputs
        if name not in protected
    }
    reasons = {name: reason for name, reason in verdicts.items() if reason}
    if len(reasons) < len(inputs.columns):
        return reasons
    return {
        name: reason for name, reason in reasons.items() if inputs[name].nunique() < 2 or inputs[name].dtype == object
    }


def _mostly_rare(name: str, column: Any) -> str:
    """Return a warning about a column of text with mostly rare categories; "" for any other column."""
    from ..tabular import CategoricalColumn

    rare = column[column.isin(CategoricalColumn.fit(name, column.to_numpy(object)).rare)]
    if len(rare) <= len(column) / 2:
        return ""
    return (
        f"{name} has {column.nunique():,} categories, and most rows have a rare one, such as {quoted(rare.iloc[0])}. "
        f"The column therefore carries little information. Merge categories, or use --drop {shlex.quote(name)}."
    )
