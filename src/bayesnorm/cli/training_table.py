"""The table that `bayesnorm fit` learns from: read, looked at, and refused where nothing can be learned from it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, quoted
from .file_columns import require_columns, typed
from .fit_options import FitOptions
from .tables import open_table, read_table
from .task import Task, guess_task, require_targets
from .usage import UsageError

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
    """

    inputs: Any
    y: Any
    kinds: dict[str, Kind]
    task: Task
    warnings: tuple[str, ...]


def load_training_table(data: Path, options: FitOptions, max_mib: float, tell: Tell) -> TrainingTable:
    """Read a table and look whether it can be learned from.

    Args:
        data: The file.
        options: What to predict, which columns to leave out, which hold categories, and how many rows to take.
        max_mib: Largest size of the file that is read.
        tell: Called with a line for whoever waits.
    """
    file = open_table(data, max_mib)
    require_columns(file, [options.target], "--target")
    require_columns(file, options.drop, "--drop")
    require_columns(file, options.categorical, "--categorical")
    if options.target in options.drop:
        raise UsageError(f"--drop: {quoted(options.target)} is the target; another column would work.")
    names = [name for name in file.names if name != options.target and name not in options.drop]
    if not names:
        raise InputError(f"{data} has no column beside {quoted(options.target)} to predict it from; one would work.")
    frame = read_table(file)
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
        raise InputError(f"{data}: no row has a {quoted(options.target)}; rows with one would work.")
    columns, kinds = typed(frame[[options.target]], data, categorical=options.categorical, decimal=file.decimal)
    values, kind = columns[options.target].to_numpy(), kinds[options.target]
    guess = guess_task(options.target, values, kind)
    task = options.task or guess.task
    y = require_targets(data, options.target, values, kind, task)
    inputs, kinds = typed(frame[names], data, categorical=options.categorical, decimal=file.decimal)
    if options.task is None:
        tell(f"{task}: {guess.reason} (--task says otherwise)")
    rare = [line for name in names if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    for line in rare:
        tell(line)
    warnings += rare
    return TrainingTable(inputs, y, kinds, task, tuple(warnings))


def _mostly_rare(name: str, column: Any) -> str:
    """Return a warning about a column of text that is different in most rows, such as dates; "" for any other."""
    from ..tabular.preprocessing import CategoricalColumn

    rare = column[column.isin(CategoricalColumn.fit(name, column.to_numpy(object)).rare)]
    if len(rare) <= len(column) / 2:
        return ""
    return (
        f"{name} holds text such as {quoted(rare.iloc[0])} that is different in most rows, so that little can be "
        f"learned from it: numbers in its place would work, or --drop {shlex.quote(name)}."
    )
