"""The options of the commands, and how the texts of those of `bayesnorm fit` are read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..errors import quoted
from .ending import UsageError


def option(metavar: str, words: str, default: str | bool = True, *names: str, **limits: Any) -> Any:
    """Describe an option with a value.

    Args:
        metavar: What the value is.
        words: The help text.
        default: How the help names the default; True shows the value.
        names: The names of the option, unless its parameter names it.
        limits: `min` and `max`.
    """
    return Option(*names, metavar=metavar or None, help=words, show_default=default, **limits)


def flag(name: str, words: str) -> Any:
    """Describe an option without a value."""
    return Option(name, help=words)


# The help text for a table.
A_TABLE = (
    "Table to read: a CSV, TSV, JSON, Excel or Parquet file, also gzipped or zipped, - for standard input, or "
    "sqlite:///FILE.db?TABLE."
)
NewRows = Annotated[str, Argument(help=f"{A_TABLE} It needs the columns used in training.")]
RunFolder = Annotated[Path, Argument(help="Folder that `bayesnorm fit --out` created.")]
Encoding = Annotated[str | None, option("NAME", "Encoding of text files, such as cp1252.", "detected")]
MaxSize = Annotated[float, option("MIB", "Refuse larger files.", min=0)]
Force = Annotated[bool, flag("--force", "Overwrite an existing file.")]
SpreadsheetSafe = Annotated[
    bool, flag("--spreadsheet-safe", "Put ' before text that a spreadsheet would run as a formula.")
]
AsJson = Annotated[bool, flag("--json", "Print the result as JSON.")]

DATES = ("date", "day-first", "month-first")
"""The values of `--as` for columns of dates."""

KINDS = ("category", "number", "text", *DATES)
"""All values of `--as`."""


# The task (predict a number or a class), which rows are held out, and as in the estimators of `bayesnorm.tabular` the
# device that trains the networks and the method for the epistemic uncertainty.
Task = StrEnum("Task", "regression classification")
Holdout = StrEnum("Holdout", "random last")
Device = StrEnum("Device", "cpu cuda auto")
UncertaintyMethod = StrEnum("UncertaintyMethod", "mcbn gaussian stochastic dropout ensemble")

# A description of each method for the report.
METHOD_DESCRIPTIONS = {
    UncertaintyMethod.mcbn: "Monte Carlo Batch Normalization: the epistemic uncertainty comes from sampling the "
    "statistics of training batches",
    UncertaintyMethod.gaussian: "Gaussian batch statistics: the epistemic uncertainty comes from sampling batch means "
    "and standard deviations from a normal distribution",
    UncertaintyMethod.stochastic: "Stochastic Batch Normalization: the epistemic uncertainty comes from sampling the "
    "batch mean and standard deviation of each unit independently",
    UncertaintyMethod.dropout: "Monte Carlo dropout: the epistemic uncertainty comes from dropping units at random",
    UncertaintyMethod.ensemble: "A deep ensemble: the epistemic uncertainty comes from the disagreement of networks "
    "with different initial weights",
}


@dataclass(frozen=True)
class FitOptions:
    """What to train, and how; the run folder stores these options under the same names.

    Args:
        target: The column to predict.
        task: Regression or classification; None guesses.
        method: The method for the epistemic uncertainty, as in `BayesNormRegressor`.
        drop: Columns to leave out.
        keep: Columns to use even if they look useless, such as ids.
        categorical: Columns whose numbers are categories.
        read_as: The kind of some columns, one of `KINDS`; columns of kind "text" are left out.
        test_fraction: Fraction of rows held out for the report; 0 for cross-validation of all rows; None for 0.2, or
            for cross-validation on small tables.
        holdout: Which rows are held out.
        time: The column that orders the rows by time; None for the order of the file.
        group: The column whose equal values keep rows together; None for no groups.
        weight: The column with the weight of each row; None for equal weights.
        seed: The random seed.
        epochs: Number of epochs; None chooses it by cross-validation.
        hidden: Units of each hidden layer; None chooses them by cross-validation.
        members: Number of networks; None for the estimator's default.
        networks_only: Whether to train networks only, without boosted trees and a linear model.
        fast: Whether to train one configuration only, with half the training budget.
        interruptible: Whether Ctrl-C keeps the networks trained so far.
        conformal: Whether to compute conformal intervals.
        homoscedastic: Whether all rows share one noise level.
        effective_batch_size: As in `BayesNormRegressor`; None for the estimator's default.
        device: The device that trains the networks.
        max_rows: Largest number of rows, sampled at random; None for all rows.
    """

    target: str
    task: Task | None
    method: str
    drop: tuple[str, ...]
    keep: tuple[str, ...]
    categorical: tuple[str, ...]
    read_as: dict[str, str]
    test_fraction: float | None
    holdout: Holdout
    time: str | None
    group: str | None
    weight: str | None
    seed: int
    epochs: int | None
    hidden: tuple[int, ...] | None
    members: int | None
    networks_only: bool
    fast: bool
    interruptible: bool
    conformal: bool
    homoscedastic: bool
    effective_batch_size: str | float | None
    device: Device
    max_rows: int | None

    @classmethod
    def from_command_line(cls, values: Mapping[str, Any]) -> FitOptions:
        """Return the options for the arguments of the command, or raise an error for one that cannot be used."""
        read = {
            **values,
            **{name: tuple(values[name] or ()) for name in ("drop", "keep", "categorical")},
            "target": values["target"][0],
            "method": str(values["method"]),
            "read_as": dict(map(_column_kind, values["as_"] or ())),
            "test_fraction": _test_fraction(values["test_fraction"]),
            "holdout": _holdout(values["holdout"], values["time"], values["group"]),
            "hidden": _units(values["hidden"]),
            "effective_batch_size": _effective_batch_size(values["effective_batch_size"]),
        }
        return cls(**{field.name: read[field.name] for field in fields(cls)})


def _test_fraction(value: float | None) -> float | None:
    """Return the fraction of rows to hold out, or raise an error."""
    if value is not None and not 0 <= value <= 0.5:
        raise UsageError(f"--test-fraction must be a number from 0 to 0.5, got {value:g}.")
    return value


def _holdout(option: Holdout | None, time: str | None, group: str | None) -> Holdout:
    """Return which rows are held out, or raise an error if the options contradict each other."""
    if group is not None and (time is not None or option is Holdout.last):
        raise UsageError("--group cannot be combined with --time or --holdout last. Use one of them.")
    if time is not None and option is Holdout.random:
        raise UsageError("--time cannot be combined with --holdout random. Use one of them.")
    return Holdout.last if time is not None else option or Holdout.random


def _column_kind(text: str) -> tuple[str, str]:
    """Return the column and the kind of an option value such as NAME=KIND."""
    name, equals, kind = text.rpartition("=")
    if not equals or kind not in KINDS:
        raise UsageError(f"--as must be COLUMN=KIND with a kind of {', '.join(KINDS)}, got {quoted(text)}.")
    return name, kind


def _units(text: str | None) -> tuple[int, ...] | None:
    """Return the units of the hidden layers, from text such as 128,128."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--hidden must be the units of each hidden layer, such as 128,128, got {quoted(text)}.")
    return tuple(int(part) for part in parts)


def _effective_batch_size(text: str | None) -> str | float | None:
    """Return the effective batch size, or the name of the rule that chooses it."""
    if text is None or text in ("cross-validated", "elbo"):
        return text
    with contextlib.suppress(ValueError):
        if 0 < (size := float(text)) < math.inf:
            return size
    raise UsageError(f"--effective-batch-size must be cross-validated, elbo or a positive number, got {quoted(text)}.")
