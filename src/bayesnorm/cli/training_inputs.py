"""The input columns of `bayesnorm fit`: how each is read, and which are left out and why."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InputError, quoted
from .file_columns import typed
from .fit_options import DATES, FitOptions
from .tables import TableFile
from .written_dates import WrittenDates, written_dates
from .written_numbers import Written, mixed_marks, written_columns

if TYPE_CHECKING:
    from ..tabular.column_types import Kind


@dataclass(frozen=True)
class Reading:
    """How the columns of a table are read.

    Args:
        file: The table.
        categorical: Columns to read as categories.
        forgiving: Columns of numbers or dates in which unreadable cells count as empty.
        written: The number formats of columns with a currency, percent sign or the like.
        dates: The date formats of columns.
        unread: Columns with dates in several formats, and a reason that completes the sentence "It ...".
    """

    file: TableFile
    categorical: frozenset[str]
    forgiving: frozenset[str]
    written: dict[str, Written]
    dates: dict[str, WrittenDates]
    unread: dict[str, str]

    @classmethod
    def of(cls, frame: Any, file: TableFile, names: Sequence[str], options: FitOptions) -> Reading:
        """Detect how to read the columns of a table, unless the options say it.

        Args:
            frame: The whole table.
            file: The table's file.
            names: The input columns.
            options: The options of the user.
        """
        said = options.read_as
        as_they_are = {*options.categorical, *(name for name, kind in said.items() if kind in ("category", "text"))}
        asked = {name: kind for name, kind in said.items() if kind in DATES}
        plain = {*as_they_are, *(name for name, kind in said.items() if kind == "number")}
        dates, unread = written_dates(frame, [name for name in names if name not in plain], asked, file.source)
        left = [name for name in (options.target, *names) if name not in dates]
        return cls(
            file,
            frozenset(as_they_are - {name for name, kind in said.items() if kind == "text"}),
            frozenset(name for name, kind in said.items() if kind in ("number", *DATES)),
            written_columns(frame[left], file.decimal, as_they_are),
            dates,
            {name: how for name, how in unread.items() if name not in options.keep},
        )

    def typed(self, frame: Any) -> tuple[Any, dict[str, Kind]]:
        """Return columns of the table as numbers, text or dates, and the kind of each column."""
        return typed(
            frame,
            self.file.source,
            categorical=self.categorical,
            forgiving=self.forgiving,
            decimal=self.file.decimal,
            written=self.written,
            dates=self.dates,
        )


@dataclass(frozen=True)
class TrainingInputs:
    """The input columns of the model.

    Args:
        frame: A data frame of numbers, text and dates whose index holds the row numbers in the file.
        kinds: The kind of each column.
        left_out: Columns that are left out, and a reason that completes the sentence "It ...".
        told: Sentences for the user.
    """

    frame: Any
    kinds: dict[str, Kind]
    left_out: dict[str, str]
    told: list[str] = field(default_factory=list)


def read_inputs(
    frame: Any, names: Sequence[str], reading: Reading, options: FitOptions, left_out: Mapping[str, str]
) -> TrainingInputs:
    """Return the input columns, or raise an error if none is left.

    Args:
        frame: The training rows.
        names: The candidates for inputs.
        reading: How columns are read.
        options: The options of the user.
        left_out: Columns that are left out for other reasons, and the reasons.
    """
    from ..tabular.column_types import contents_of
    from ..tabular.not_features import EMPTY

    reasons = dict(left_out)
    reasons |= {
        name: "is read as text (--as)"
        for name in names
        if options.read_as.get(name) == "text" and name not in options.keep
    }
    reasons |= reading.unread
    reasons |= {
        name: "contains durations, which are not supported; convert them to numbers, such as days"
        for name in names
        if name not in options.read_as and contents_of(frame[name]) == "durations"
    }
    inputs, kinds = reading.typed(frame[[name for name in names if name not in reasons]])
    free = [name for name in inputs if name not in {*options.keep, *options.categorical, *options.read_as}]
    mixed = {name: mixed_marks(frame[name], reading.file.decimal) for name in free if kinds[name] == "category"}
    reasons |= {name: how for name, how in mixed.items() if how}
    inputs = inputs[[name for name in inputs if name not in reasons]]
    reasons |= _not_features(inputs, {*options.keep, *options.categorical, *options.read_as})
    inputs = inputs[[name for name in inputs if name not in reasons]]
    if not len(inputs.columns):
        told = ", ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise InputError(
            f"{reading.file.source} has no column to predict from ({told}). Add one, or use --keep COLUMN."
        )
    found = [
        f"{name} was left out: it {reason}."
        + (
            f" (Use --keep {shlex.quote(name)} to include it.)"
            if (name in kinds and reason != EMPTY) or name in left_out
            else ""
        )
        for name, reason in reasons.items()
    ]
    for name in sorted(reading.forgiving):
        if name in inputs and (cells := int((inputs[name].isna() & frame[name].notna()).sum())):
            what = "date" if kinds[name] == "date" else "number"
            many = f"{cells:,} cells of {name} are not {what}s and count"
            found.append(f"{many if cells > 1 else f'1 cell of {name} is not a {what} and counts'} as empty (--as).")
    found += [line for name in inputs if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    found += [line for name, each in reading.dates.items() if name in inputs and (line := each.told(name))]
    return TrainingInputs(inputs, {name: kinds[name] for name in inputs}, reasons, found)


def _not_features(inputs: Any, kept: Collection[str]) -> dict[str, str]:
    """Return the columns without information, and why; if all columns are such, numbers stay.

    Args:
        inputs: A data frame of numbers, text and dates.
        kept: Columns that always stay.
    """
    from ..tabular.not_features import why_no_feature

    rows = inputs.index.to_numpy()
    asked = {name: why_no_feature(name, inputs[name].to_numpy(), rows) for name in inputs if name not in kept}
    found = {name: reason for name, reason in asked.items() if reason}
    if len(found) < len(inputs.columns):
        return found
    return {
        name: reason for name, reason in found.items() if inputs[name].nunique() < 2 or inputs[name].dtype == object
    }


def _mostly_rare(name: str, column: Any) -> str:
    """Return a warning about a column of text with mostly rare categories; "" for any other column."""
    from ..tabular.encoded_columns import CategoricalColumn

    rare = column[column.isin(CategoricalColumn.fit(name, column.to_numpy(object)).rare)]
    if len(rare) <= len(column) / 2:
        return ""
    return (
        f"{name} has {column.nunique():,} categories, and most rows have a rare one, such as {quoted(rare.iloc[0])}. "
        f"The column therefore carries little information. Merge categories, or use --drop {shlex.quote(name)}."
    )
