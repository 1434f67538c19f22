"""The columns that `bayesnorm fit` learns from: how each is read, and which of them are left out and why."""

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
        file: Where they come from.
        categorical: Columns that hold categories, whatever they look like.
        forgiving: Columns of numbers or dates in which any other cell counts as empty.
        written: How columns are written whose numbers are not plain.
        dates: How columns are written that hold dates.
        unread: Columns whose dates agree on no way of writing, and how, as the rest of a sentence "It ...".
    """

    file: TableFile
    categorical: frozenset[str]
    forgiving: frozenset[str]
    written: dict[str, Written]
    dates: dict[str, WrittenDates]
    unread: dict[str, str]

    @classmethod
    def of(cls, frame: Any, file: TableFile, names: Sequence[str], options: FitOptions) -> Reading:
        """Find out how to read the columns of a table, as far as their owner does not say it.

        Args:
            frame: The whole table.
            file: Where it comes from.
            names: The inputs.
            options: What their owner says.
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
        """Return columns of the table as `typed` does, and what each of them is."""
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
    """Columns to learn from.

    Args:
        frame: Data frame of numbers, text and dates, with its rows numbered as in the file.
        kinds: What each of them is.
        left_out: Columns that nothing can be learned from, and why, as the rest of a sentence "It ...".
        told: What whoever made the table must know, in sentences.
    """

    frame: Any
    kinds: dict[str, Kind]
    left_out: dict[str, str]
    told: list[str] = field(default_factory=list)


def read_inputs(
    frame: Any, names: Sequence[str], reading: Reading, options: FitOptions, left_out: Mapping[str, str]
) -> TrainingInputs:
    """Return the columns to learn from, or say why there is none.

    Args:
        frame: The rows of training.
        names: The inputs.
        reading: How columns are read.
        options: Which of them to keep, and what they are.
        left_out: Columns that are left out for other reasons, and these.
    """
    from ..tabular.column_types import contents_of
    from ..tabular.not_features import EMPTY

    reasons = dict(left_out)
    reasons |= {
        name: "is text (--as)" for name in names if options.read_as.get(name) == "text" and name not in options.keep
    }
    reasons |= reading.unread
    reasons |= {
        name: "holds durations, which are not read (a column of numbers, such as days, would be)"
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
            f"{reading.file.source} has no column to learn from ({told}); another one, or --keep COLUMN, would work."
        )
    found = [
        f"{name} was left out: it {reason}."
        + (f" (--keep {shlex.quote(name)} uses it.)" if (name in kinds and reason != EMPTY) or name in left_out else "")
        for name, reason in reasons.items()
    ]
    for name in sorted(reading.forgiving):
        if name in inputs and (cells := int((inputs[name].isna() & frame[name].notna()).sum())):
            what = "date" if kinds[name] == "date" else "number"
            many = f"{cells:,} cells of {name} are no {what}s and count"
            found.append(f"{many if cells > 1 else f'1 cell of {name} is no {what} and counts'} as empty (--as).")
    found += [line for name in inputs if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    found += [line for name, each in reading.dates.items() if name in inputs and (line := each.told(name))]
    return TrainingInputs(inputs, {name: kinds[name] for name in inputs}, reasons, found)


def _not_features(inputs: Any, kept: Collection[str]) -> dict[str, str]:
    """Return the columns that nothing can be learned from, and why; numbers stay where nothing else would.

    Args:
        inputs: Data frame of numbers, text and dates.
        kept: Columns that stay in any case.
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
    """Return a warning about a column of text most of whose categories share one feature; "" for any other."""
    from ..tabular.encoded_columns import CategoricalColumn

    rare = column[column.isin(CategoricalColumn.fit(name, column.to_numpy(object)).rare)]
    if len(rare) <= len(column) / 2:
        return ""
    return (
        f"{name} has {column.nunique():,} categories, and most rows hold a rare one, such as {quoted(rare.iloc[0])}, "
        f"so that little can be learned from it: fewer categories would work, or --drop {shlex.quote(name)}."
    )
