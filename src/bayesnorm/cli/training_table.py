"""Read and check the training table of `bayesnorm fit`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, quoted
from ..words import were
from .ending import UsageError
from .file_columns import ColumnFormat, convert_columns, mask_non_numbers, most_odd, require_columns
from .held_out import RowOrder
from .inputs_and_targets import detect_formats, guess_task, learnable_targets, read_inputs
from .options import DATES, FitOptions, Holdout, Task
from .table_source import Source
from .tables import Sample, TableFile, read_sample, read_table
from .target_hints import target_words

if TYPE_CHECKING:
    from ..tabular import column_types

Tell = Callable[[str], None]
"""A function that prints a message for the user."""


@dataclass(frozen=True)
class TrainingTable:
    """A table ready for training.

    Args:
        source: The file.
        inputs: A data frame of numbers, text and dates whose index holds the row numbers in the file.
        y: Targets, numbers or labels.
        kinds: The kind of each input column.
        task: Regression or classification.
        warnings: Sentences for the reader of the report.
        left_out: Columns that are left out, and a reason that completes the sentence "It ...".
        leaks: Columns that reveal the target, and a description that completes the sentence "It ...".
        columns: How the inputs are read, for `run.json`.
        time: The order in time; None unless the latest rows are held out.
        group: The groups of rows; None for no groups.
        weight: The weight of each row; None for equal weights.
    """

    source: Source
    inputs: Any
    y: Any
    kinds: dict[str, column_types.Kind]
    task: Task
    warnings: tuple[str, ...]
    left_out: dict[str, str]
    leaks: dict[str, str]
    columns: list[dict[str, Any]]
    time: RowOrder | None = None
    group: RowOrder | None = None
    weight: Any = None


def load_training_table(file: TableFile, options: FitOptions, tell: Tell) -> TrainingTable:
    """Read a table and check whether a model can be trained on it.

    Args:
        file: The table, from `open_table`.
        options: The options of the user.
        tell: Called with every message for the user.
    """
    _require_options(file, options)
    names = [name for name in file.names if name != options.target and name not in options.drop]
    left_out = {}
    if options.group in names and options.group not in options.keep:
        left_out[options.group] = "defines the groups (--group)"
        names.remove(options.group)
    if options.weight in names:
        left_out[options.weight] = "holds the weights of rows (--weight)"
        names.remove(options.weight)
    if not names:
        raise InputError(
            f"{file.source} has no column to predict {quoted(options.target)} from. Add at least one input column."
        )
    split_columns = [name for name in (options.time, options.group) if name and name not in names]
    weight_columns = [options.weight] if options.weight else []
    columns = list(dict.fromkeys((options.target, *names, *split_columns, *weight_columns)))
    sample = None
    if options.max_rows is not None:
        sample = read_sample(file, columns, options.max_rows, options.target, options.seed)
    frame = read_table(file, columns) if sample is None else sample.frame
    formats, unread = detect_formats(frame, file, [*names, *split_columns], options)
    frame, odd_targets = _without_odd_targets(frame, file, formats, options)
    frame, warnings = _rows_with_targets(frame, file, options, sample)
    warnings += odd_targets
    weights = _weights(frame, file, options)
    for line in warnings:
        tell(line)
    y, task, reason = _targets(frame, file, formats, options)
    left_out |= unread
    inputs, kinds, messages = read_inputs(frame, names, file, formats, options, left_out)
    if options.task is None:
        tell(f"Task: {task}, because {reason} (use --task to override).")
    messages += target_words(options.target, y, inputs, task)
    leaks = _leaks(inputs, y, options.target, task)
    messages += [
        f"Possible leak: {name} {how}. (Use --drop {shlex.quote(name)} to leave it out.)" for name, how in leaks.items()
    ]
    messages += [
        number_format.describe(name)
        for name in (options.target, *kinds)
        if (number_format := formats[name].numbers) is not None
    ]
    for line in messages:
        tell(line)
    stored = [{"name": name, **replace(formats[name], kind=kind).as_json()} for name, kind in kinds.items()]
    time, group = _time(frame, file, formats, options), _group(frame, options)
    return TrainingTable(
        file.source,
        inputs,
        y,
        kinds,
        task,
        (*warnings, *messages),
        left_out,
        leaks,
        stored,
        time,
        group,
        weights,
    )


def _require_options(file: TableFile, options: FitOptions) -> None:
    """Raise an error for columns that do not exist, and for options that contradict each other."""
    named: dict[str, Sequence[str]] = {
        "--target": (options.target,),
        "--drop": options.drop,
        "--keep": options.keep,
        "--categorical": options.categorical,
        "--as": tuple(options.read_as),
        "--time": () if not options.time else (options.time,),
        "--group": () if not options.group else (options.group,),
        "--weight": () if not options.weight else (options.weight,),
    }
    for option, names in named.items():
        require_columns(file, names, option)
    for option in ("--time", "--group", "--weight", "--drop", "--keep"):
        if options.target in named[option]:
            raise UsageError(f"{option}: {quoted(options.target)} is the target. Choose another column.")
    if options.read_as.get(options.target) in ("text", *DATES):
        raise UsageError(f"--as: the target {quoted(options.target)} can be read as category or number only.")
    for option in ("--keep", "--as"):
        both = [name for name in named[option] if name in options.drop]
        if both:
            raise UsageError(f"{option} and --drop both name {quoted(both[0])}. Use one of them.")


def _rows_with_targets(
    frame: Any, file: TableFile, options: FitOptions, sample: Sample | None
) -> tuple[Any, list[str]]:
    """Return the rows that have a target, and sentences about the others."""
    warnings = []
    if file.nameless:
        left = were(file.nameless, "column", " without a name in the first line")
        warnings.append(f"{left} left out.")
    has_target = frame[options.target].notna().to_numpy()
    without = int((~has_target).sum()) + (0 if sample is None else sample.without)
    if without:
        left = were(without, "row", f" without a value in {options.target}")
        warnings.append(f"{left} left out. (Cells such as NA, None and null count as missing.)")
        frame = frame[has_target]
    if sample is not None and sample.rows > len(sample.frame):
        warnings.append(f"{len(sample.frame):,} of {sample.rows:,} rows were sampled at random (--max-rows).")
    if not len(frame):
        raise InputError(f"{file.source}: no row has a value in {quoted(options.target)}. Pass rows with a target.")
    return frame, warnings


def _without_odd_targets(
    frame: Any, file: TableFile, formats: Mapping[str, ColumnFormat], options: FitOptions
) -> tuple[Any, list[str]]:
    """Return the rows with empty cells in place of a few targets that are no numbers, and a sentence about them."""
    name, column = options.target, frame[options.target]
    numbers = formats[name].numbers
    masked = mask_non_numbers(column, file.decimal, numbers)
    if options.read_as.get(name) == "number":
        return frame.assign(**{name: masked}), []
    odd = masked.isna().to_numpy() & column.notna().to_numpy()
    if options.task is Task.classification or name in options.categorical or not 0 < odd.sum() <= most_odd(column):
        return frame, []
    example, count = quoted(column.iloc[int(odd.argmax())]), int(odd.sum())
    some = f"{count:,} cells of {name} cannot be read as numbers and count"
    if count == 1:
        some = f"1 cell of {name} cannot be read as a number and counts"
    return frame.assign(**{name: masked}), [f"{some} as empty (such as {example})."]


def _targets(
    frame: Any, file: TableFile, formats: Mapping[str, ColumnFormat], options: FitOptions
) -> tuple[Any, Task, str]:
    """Return the targets, the task, and the reason for the guessed task."""
    columns, kinds = convert_columns(frame[[options.target]], file.source, formats, file.decimal)
    values, kind = columns[options.target].to_numpy(), kinds[options.target]
    guess, reason = guess_task(options.target, values, kind)
    task = options.task or guess
    return learnable_targets(file.source, options.target, values, kind, task), task, reason


def _time(frame: Any, file: TableFile, formats: Mapping[str, ColumnFormat], options: FitOptions) -> RowOrder | None:
    """Return the order in time; None unless the latest rows are held out."""
    if options.holdout is not Holdout.last:
        return None
    if options.time is None:
        return RowOrder("", np.arange(len(frame), dtype=np.float64))
    columns, kinds = convert_columns(frame[[options.time]], file.source, formats, file.decimal)
    values = columns[options.time]
    if kinds[options.time] == "category" or values.nunique() < 2:
        first = quoted(str(values.dropna().iloc[0])) if values.notna().any() else "nothing"
        raise UsageError(
            f"--time: {quoted(options.time)} contains {first}. Choose a column with different dates or numbers."
        )
    return RowOrder(options.time, values.to_numpy())


def _group(frame: Any, options: FitOptions) -> RowOrder | None:
    """Return the groups of rows; each row without a value is a separate group."""
    if options.group is None:
        return None
    column = frame[options.group]
    cells = zip(column.index, column, column.isna(), strict=True)
    values = [f"row {row}" if missing else f"={cell}" for row, cell, missing in cells]
    return RowOrder(options.group, np.array(values, dtype=object))


def _weights(frame: Any, file: TableFile, options: FitOptions) -> Any:
    """Return the weight of each row; None for equal weights."""
    if options.weight is None:
        return None
    columns, kinds = convert_columns(frame[[options.weight]], file.source, None, file.decimal)
    values = columns[options.weight].to_numpy()
    if kinds[options.weight] != "number" or np.isnan(values).any() or (values < 0).any() or not (values > 0).any():
        raise InputError(
            f"--weight: {quoted(options.weight)} must have a number of 0 or more in every row, and some above 0. "
            "Choose another column, or correct it."
        )
    return values


def _leaks(inputs: Any, y: Any, target: str, task: Task) -> dict[str, str]:
    """Return the columns that reveal the target, and how."""
    from ..tabular import column_checks, joint_leaks

    classes, columns = task is Task.classification, {name: inputs[name].to_numpy() for name in inputs}
    alone = {name: column_checks.leak(values, y, target, classes=classes) for name, values in columns.items()}
    together = joint_leaks({name: columns[name] for name in columns if not alone[name]}, y, target, classes=classes)
    return {name: how for name, how in alone.items() if how} | together
