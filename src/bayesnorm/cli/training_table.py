"""The table that `bayesnorm fit` learns from: read, looked at, and refused where nothing can be learned from it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, quoted
from .file_columns import numbers_alone, require_columns, typed
from .fit_options import FitOptions
from .tables import TableFile, open_table, read_table
from .task import Task, guess_task, require_targets
from .usage import UsageError
from .written_numbers import Written, written_columns

if TYPE_CHECKING:
    from ..tabular.column_types import Kind

Tell = Callable[[str], None]
"""Takes a line for whoever waits."""


@dataclass(frozen=True)
class TrainingTable:
    """A table ready for training.

    Args:
        inputs: Data frame of numbers and text, with its rows numbered as in the file.
        y: Targets, numbers or labels.
        kinds: What each column of the inputs is.
        task: What is to be predicted.
        warnings: What the reader of the report must know, in sentences.
        left_out: Columns that nothing can be learned from, and why, as the rest of a sentence "It ...".
        forgiving: Columns of numbers in which any other cell counts as empty.
        leaks: Columns that alone give the target away, and how, as the rest of a sentence "It ...".
        file: Where it comes from.
        written: How columns of the inputs are written whose numbers are not plain.
    """

    inputs: Any
    y: Any
    kinds: dict[str, Kind]
    task: Task
    warnings: tuple[str, ...]
    left_out: dict[str, str]
    forgiving: frozenset[str]
    leaks: dict[str, str]
    file: TableFile
    written: dict[str, Written]


def load_training_table(
    data: str, options: FitOptions, max_mib: float, tell: Tell, encoding: str | None = None
) -> TrainingTable:
    """Read a table and look whether it can be learned from.

    Args:
        data: The file, or what else `open_table` takes.
        options: What to predict, which columns to leave out, which hold categories, and how many rows to take.
        max_mib: Largest size of the file that is read.
        tell: Called with a line for whoever waits.
        encoding: The encoding of text; None to find it out.
    """
    from ..tabular.column_types import contents_of
    from ..tabular.not_features import EMPTY, dates_unread

    file = open_table(data, max_mib, encoding)
    source = file.source
    require_columns(file, [options.target], "--target")
    require_columns(file, options.drop, "--drop")
    require_columns(file, options.keep, "--keep")
    require_columns(file, options.categorical, "--categorical")
    require_columns(file, list(options.read_as), "--as")
    _require_agreement(options)
    names = [name for name in file.names if name != options.target and name not in options.drop]
    if not names:
        raise InputError(f"{source} has no column beside {quoted(options.target)} to predict it from; one would work.")
    frame = read_table(file)
    said: dict[str, set[str]] = {"category": set(), "number": set(), "text": set()}
    for name, given in options.read_as.items():
        said[given].add(name)
    categorical = {*options.categorical, *said["category"]}
    written = written_columns(frame[[options.target, *names]], file.decimal, {*categorical, *said["text"]})
    if options.target in said["number"]:
        frame[options.target] = numbers_alone(frame[options.target], file.decimal, written.get(options.target))
    warnings = []
    known = frame[options.target].notna().to_numpy()
    if not known.all():
        left = f"{int((~known).sum()):,} rows without a value in {options.target} were left out."
        warnings.append(f"{left} (Words such as NA, None and null are no values.)")
        frame = frame[known]
    if options.max_rows is not None and len(frame) > options.max_rows:
        warnings.append(f"{options.max_rows:,} of {len(frame):,} rows were drawn at random (--max-rows).")
        kept = np.random.default_rng(options.seed).permutation(len(frame))[: options.max_rows]
        frame = frame.iloc[np.sort(kept)]
    for line in warnings:
        tell(line)
    if not len(frame):
        raise InputError(f"{source}: no row has a {quoted(options.target)}; rows with one would work.")
    reading: Any = {
        "categorical": categorical,
        "forgiving": said["number"],
        "decimal": file.decimal,
        "written": written,
    }
    columns, kinds = typed(frame[[options.target]], source, **reading)
    values, kind = columns[options.target].to_numpy(), kinds[options.target]
    guess = guess_task(options.target, values, kind)
    task = options.task or guess.task
    y = require_targets(source, options.target, values, kind, task)
    left_out = {
        name: "is text (--as)" for name in names if options.read_as.get(name) == "text" and name not in options.keep
    }
    wanted = {*options.keep, *options.categorical, *options.read_as}
    left_out |= {
        name: dates_unread(frame[name].dropna().iloc[0])
        for name in names
        if name not in wanted and contents_of(frame[name]) == "dates" and frame[name].notna().any()
    }
    inputs, kinds = typed(frame[[name for name in names if name not in left_out]], source, **reading)
    if options.task is None:
        tell(f"{task}: {guess.reason} (--task says otherwise)")
    left_out |= _not_features(inputs, wanted)
    inputs = inputs[[name for name in inputs if name not in left_out]]
    if not len(inputs.columns):
        told = ", ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise InputError(f"{source} has no column to learn from ({told}); another one, or --keep COLUMN, would work.")
    found = [
        f"{name} was left out: it {reason}."
        + (f" (--keep {shlex.quote(name)} uses it.)" if name in kinds and reason != EMPTY else "")
        for name, reason in left_out.items()
    ]
    forgiving = frozenset(name for name in said["number"] if name in inputs)
    emptied = {name: int((inputs[name].isna() & frame[name].notna()).sum()) for name in sorted(forgiving)}
    found += [f"{n:,} cells of {name} are no numbers and count as empty (--as)." for name, n in emptied.items() if n]
    found += [line for name in inputs if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    leaks = _leaks(inputs, y, options.target, task)
    found += [f"{name} {how}. (--drop {shlex.quote(name)} leaves it out.)" for name, how in leaks.items()]
    found += [each.told(name) for name, each in written.items() if name in inputs or name == options.target]
    for line in found:
        tell(line)
    used: dict[str, Kind] = {name: kinds[name] for name in inputs}
    of_inputs = {name: each for name, each in written.items() if name in inputs}
    return TrainingTable(inputs, y, used, task, (*warnings, *found), left_out, forgiving, leaks, file, of_inputs)


def _require_agreement(options: FitOptions) -> None:
    """Refuse options that say two things of one column."""
    for option, names in (("--drop", options.drop), ("--keep", options.keep)):
        if options.target in names:
            raise UsageError(f"{option}: {quoted(options.target)} is the target; another column would work.")
    if options.read_as.get(options.target) == "text":
        raise UsageError(f"--as: {quoted(options.target)} is the target; category or number would work.")
    for option, names in (("--keep", options.keep), ("--as", tuple(options.read_as))):
        both = [name for name in names if name in options.drop]
        if both:
            raise UsageError(f"{option}: {quoted(both[0])} was given to --drop too; one of them would work.")


def _not_features(inputs: Any, kept: Collection[str]) -> dict[str, str]:
    """Return the columns that nothing can be learned from, and why; numbers stay where nothing else would.

    Args:
        inputs: Data frame of numbers and text.
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


def _leaks(inputs: Any, y: Any, target: str, task: Task) -> dict[str, str]:
    """Return the columns that alone give the target away, and how."""
    from ..tabular.leaks import leak

    classes = task is Task.classification
    asked = {name: leak(inputs[name].to_numpy(), y, target, classes=classes) for name in inputs}
    return {name: how for name, how in asked.items() if how}


def _mostly_rare(name: str, column: Any) -> str:
    """Return a warning about a column of text most of whose categories share one feature; "" for any other."""
    from ..tabular.preprocessing import CategoricalColumn

    rare = column[column.isin(CategoricalColumn.fit(name, column.to_numpy(object)).rare)]
    if len(rare) <= len(column) / 2:
        return ""
    return (
        f"{name} has {column.nunique():,} categories, and most rows hold a rare one, such as {quoted(rare.iloc[0])}, "
        f"so that little can be learned from it: fewer categories would work, or --drop {shlex.quote(name)}."
    )
