"""The columns of `bayesnorm fit`: how they are read, which inputs are left out and why, and the task of the target."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from ..words import capitalise
from .file_columns import ColumnFormat, OddCells, convert_columns, most_odd, odd_words
from .options import DATES, FitOptions, Task
from .table_source import Source, as_labels
from .tables import TableFile, pandas
from .written_dates import detect_date_formats
from .written_numbers import detect_number_formats, mixed_marks

if TYPE_CHECKING:
    from ..tabular import column_types

# Whole numbers with at most this many different values are classes.
FEW_VALUES = 10

# Smallest number of rows for training and testing.
LEAST_ROWS = 12

# Floats represent all whole numbers below this one exactly.
EXACT = 2**53


def detect_formats(
    frame: Any, file: TableFile, names: Sequence[str], options: FitOptions
) -> tuple[dict[str, ColumnFormat], dict[str, str]]:
    """Return how to read the target and the inputs, and the inputs that are left out: each with a reason "It ...".

    Args:
        frame: The whole table.
        file: The table's file.
        names: The input columns.
        options: The options of the user, which come first.
    """
    kinds = options.read_as
    plain = {*options.categorical, *(name for name, kind in kinds.items() if kind in ("category", "text"))}
    date_options = {name: kind for name, kind in kinds.items() if kind in DATES}
    candidates = [name for name in names if name not in plain and kinds.get(name) != "number"]
    dates, unread = detect_date_formats(frame, candidates, date_options, file.source)
    columns = [options.target, *names]
    numbers = detect_number_formats(frame[[name for name in columns if name not in dates]], file.decimal, plain)
    formats = {
        name: ColumnFormat(
            "category" if name in plain and kinds.get(name) != "text" else None,
            numbers.get(name),
            dates.get(name),
            kinds.get(name) in ("number", *DATES),
        )
        for name in columns
    }
    as_text = (name for name in names if kinds.get(name) == "text" and name != options.group)
    reasons = dict.fromkeys(as_text, "is read as text (--as)") | unread
    return formats, {name: reason for name, reason in reasons.items() if name not in options.keep}


def read_inputs(
    frame: Any,
    names: Sequence[str],
    file: TableFile,
    formats: dict[str, ColumnFormat],
    options: FitOptions,
    reasons: dict[str, str],
) -> tuple[Any, dict[str, column_types.Kind], list[str]]:
    """Return the input columns, their kinds, and sentences for the user; raise an error if no column is left.

    Args:
        frame: The training rows.
        names: The candidates for inputs.
        file: The table's file.
        formats: How columns are read; it notes which columns have odd cells.
        options: The options of the user.
        reasons: Columns that are left out, and a reason that completes the sentence "It ..."; more are added.
    """
    from ..tabular import column_checks, column_types

    reasons |= {
        name: "contains durations, which are not supported; convert them to numbers, such as days"
        for name in names
        if name not in options.read_as and column_types.contents_of(frame[name]) == "durations"
    }
    remaining = frame[[name for name in names if name not in reasons]]
    inputs, kinds, odd_messages = _convert_inputs(remaining, file, formats)
    protected = {*options.keep, *options.categorical, *options.read_as}
    free = [name for name in inputs if name not in protected]
    mixed = {name: mixed_marks(frame[name], file.decimal) for name in free if kinds[name] == "category"}
    reasons |= {name: reason for name, reason in mixed.items() if reason}
    inputs = inputs[[name for name in inputs if name not in reasons]]
    reasons |= _uninformative_columns(inputs, protected)
    inputs = inputs[[name for name in inputs if name not in reasons]]
    if not len(inputs.columns):
        listed_reasons = ", ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise InputError(
            f"{file.source} has no column to predict from ({listed_reasons}). Add one, or use --keep COLUMN."
        )
    messages = [
        f"{name} was left out: it {reason}."
        + (
            f" (Use --keep {shlex.quote(name)} to include it.)"
            if (name in kinds and reason != column_checks.EMPTY) or name == options.group
            else ""
        )
        for name, reason in reasons.items()
    ]
    messages += [line for name, line in sorted(odd_messages.items()) if name in inputs]
    messages += [line for name in inputs if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    messages += [line for name in inputs if (dates := formats[name].dates) and (line := dates.describe(name))]
    return inputs, {name: kinds[name] for name in inputs}, messages


def _convert_inputs(
    frame: Any, file: TableFile, formats: dict[str, ColumnFormat]
) -> tuple[Any, dict[str, column_types.Kind], dict[str, str]]:
    """Return the columns, their kinds, and for each column with odd cells a sentence about them.

    A few odd cells, such as text among numbers, count as missing, and the format of their column notes it. All columns
    that cannot be read are named at once.
    """
    odd, errors, columns, messages = OddCells(), list[str](), list[Any](), dict[str, str]()
    kinds: dict[str, column_types.Kind] = {}
    for name in frame:
        try:
            values, kind = convert_columns(frame[[name]], file.source, formats, file.decimal, odd)
        except InputError as error:
            errors.append(str(error).removeprefix(f"{file.source}: "))
            continue
        cells, what = odd.get(name), "date" if kind[name] == "date" else "number"
        if cells is not None:
            forgiven = formats[name].forgiving
            if not forgiven and cells.sum() > most_odd(frame[name]):
                errors.append(odd_words(frame[name], cells, what))
                continue
            formats[name] = replace(formats[name], forgiving=True)
            count = int(cells.sum())
            many = f"{count:,} cells of {name} cannot be read as {what}s and count"
            few = f"1 cell of {name} cannot be read as a {what} and counts"
            example = quoted(frame[name].iloc[int(cells.argmax())])
            messages[name] = f"{many if count > 1 else few} as empty ({'--as' if forgiven else f'such as {example}'})."
        columns.append(values)
        kinds |= kind
    if len(errors) == 1:
        raise InputError(f"{file.source}: {errors[0]}")
    if errors:
        raise InputError(f"{file.source}: {len(errors)} columns cannot be read. {' '.join(map(capitalise, errors))}")
    return pandas().concat(columns, axis=1) if columns else frame, kinds, messages


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


def learnable_targets(
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
