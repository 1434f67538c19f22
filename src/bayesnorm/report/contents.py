"""The contents of a report, as plain values."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Self

import numpy as np

from ..errors import InputError
from .classification import ClassificationTest
from .influence import Influence
from .page_plots import LearningCurve
from .regression import Array, RegressionTest

Value = float | int | str


@dataclass(frozen=True)
class Column:
    """One column of the table, described by its training rows.

    Args:
        name: Name of the column in the file's first line.
        kind: "number", "category" or "date". Dates are numbers of days since 1970.
        low, median, high: Smallest, median and largest value of a column of numbers or dates.
        categories: The categories of a column of categories.
        missing: Number of rows in the file without a value.
    """

    name: str
    kind: Literal["number", "category", "date"]
    low: float | None = None
    median: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    missing: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("number", "category", "date"):
            raise InputError(
                f'kind of the column {self.name!r} must be "number", "category" or "date", got {self.kind!r}.'
            )


@dataclass(frozen=True)
class Table:
    """The table that the model was trained on.

    Args:
        file: Name of the file.
        rows: Number of all rows that were used, including test rows.
        train_rows: Number of rows that the network was trained on.
        validation_rows: Number of rows used only to choose settings; 0 if cross-validation chose them.
        columns: The inputs, in the order of the file.
        target: The column that is predicted.
        cross_validated: Whether every row is tested, each with networks that were trained on other rows.
    """

    file: str
    rows: int
    train_rows: int
    validation_rows: int
    columns: tuple[Column, ...]
    target: Column
    cross_validated: bool = False


@dataclass(frozen=True)
class HeldOutRows:
    """The inputs of all test rows, in the same order as the arrays of the test.

    Args:
        names: Names of the columns.
        values: One sequence per row, with one value per column: a number (for dates, days since 1970), a text, or None
            if it is missing.
        numbers: Number of each row in the file; the first row after the header is 1.
        reasons: For each row, the reasons why it is unusual compared with the training rows, separated by "; ", or "".
            A reason that is about one column begins with its name. Empty if no reasons are known.
    """

    names: tuple[str, ...]
    values: Sequence[Sequence[object]]
    numbers: Sequence[int]
    reasons: Sequence[str] = ()

    def __post_init__(self) -> None:
        if len(self.values) != len(self.numbers):
            raise InputError(
                f"numbers must have one entry per row, got {len(self.numbers)} for {len(self.values)} rows."
            )
        wrong = [len(row) for row in self.values if len(row) != len(self.names)]
        if wrong:
            raise InputError(f"values must have one value per column ({len(self.names)}), got a row of {wrong[0]}.")


@dataclass(frozen=True)
class RowReasons:
    """How much each column of an uncertain row adds to its epistemic uncertainty.

    Args:
        row: Index of the row among the test rows.
        total: Its epistemic uncertainty: a variance, or mutual information in nats.
        baseline: The epistemic uncertainty of a typical row, for comparison.
        shares: Contribution of each column, in the order of the table, as a share of the sum of the baseline and all
            positive contributions. It is negative if a column reduces the uncertainty.
        words: The columns that add most, such as "area 64 %, town 20 %"; "" if none adds much.
    """

    row: int
    total: float
    baseline: float
    shares: tuple[float, ...]
    words: str


@dataclass(frozen=True)
class UncertaintyReasons:
    """Which columns cause the epistemic uncertainty of the rows where it is largest.

    Args:
        explained: Number of rows that were explained.
        first: For each column, the share of these rows in which it adds most; the most frequent first.
        rows: The most uncertain of these rows, the most uncertain first.
    """

    explained: int
    first: Mapping[str, float]
    rows: tuple[RowReasons, ...]


@dataclass(frozen=True)
class TriedSetting:
    """One configuration that was tried, with its score.

    Args:
        values: Values by name, such as {"weight decay": 0.01}.
        score: Its score.
        error: Standard error of the score over folds; None if unknown.
    """

    values: Mapping[str, Value]
    score: float
    error: float | None = None


@dataclass(frozen=True)
class Choice:
    """The settings that were tried, and the one that was chosen.

    Args:
        settings: All settings that were tried; empty if there was only one.
        chosen: Index of the chosen setting.
        score: Name of the score that was compared, such as "mean CRPS".
        better: Whether "lower" or "higher" scores are better.
        folds: Number of folds of the cross-validation.
        seconds: Time that the comparison took.
        also: Values that were chosen afterwards, by name.
    """

    settings: tuple[TriedSetting, ...]
    chosen: int
    score: str
    better: Literal["lower", "higher"]
    folds: int
    seconds: float
    also: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.settings and not 0 <= self.chosen < len(self.settings):
            raise InputError(f"chosen must be a whole number from 0 to {len(self.settings) - 1}, got {self.chosen}.")
        if self.better not in ("lower", "higher"):
            raise InputError(f'better must be "lower" or "higher", got {self.better!r}.')


@dataclass(frozen=True)
class Provenance:
    """The origin of the model.

    Args:
        versions: Versions of the software, by name.
        hardware: The machine on which it was trained.
        date: Date of the training.
        command: Command that repeats it.
        seconds: Total time.
    """

    versions: Mapping[str, str]
    hardware: str
    date: str
    command: str = ""
    seconds: float | None = None

    @classmethod
    def now(cls, command: str, seconds: float | None = None) -> Self:
        """Return today's date, this machine and the versions of the installed packages.

        Args:
            command: Command that creates the same page again.
            seconds: Total time.
        """
        packages = {name: version(name) for name in ("torch", "numpy", "pandas", "scikit-learn")}
        versions = {"bayesnorm": sys.modules["bayesnorm"].__version__, **packages, "python": platform.python_version()}
        return cls(versions, cpu_name(), datetime.now().astimezone().date().isoformat(), command, seconds)


def cpu_name() -> str:
    """Return the name of the processor, as the operating system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Baseline:
    """Predictions of a simple model for the test rows.

    Args:
        name: Its name, as the subject of a sentence, such as "a linear model".
        predictions: Means (N,), or class probabilities (N, C).
        std: The constant standard deviation of its errors; None for classes.
    """

    name: str
    predictions: Array
    std: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "predictions", np.asarray(self.predictions, dtype=np.float64))


@dataclass(frozen=True)
class ErrorShift:
    """Errors that are clearly larger on the latest rows than in cross-validation on earlier rows.

    Args:
        before: Error in cross-validation.
        after: Error on the held-out rows, which are the latest.
        measure: Name of the error, such as "typical error".
    """

    before: float
    after: float
    measure: str


@dataclass(frozen=True)
class Report:
    """The contents of the page about a model.

    Args:
        table: The table that the model was trained on.
        rows: Inputs of the test rows.
        test: Predictions for the test rows, of regression or of classification.
        choice: The settings that were tried, and the one that was chosen.
        provenance: Versions, machine and date.
        method: One or two sentences about how the model predicts.
        title: Title of the page; None for "<target> from <file>".
        warnings: Sentences that the page shows near the top.
        leaks: Columns that alone reveal the target, and how, as the rest of a sentence "It ...".
        reasons: Which columns cause the uncertainty of the most uncertain rows; None if unknown.
        curve: How the error falls with the number of rows; None if unknown.
        baselines: Predictions of simple models for the same rows.
        influence: What drives predictions and their uncertainty; None if unknown.
        shift: How the error grew over time; None if it did not clearly, or if the test rows are not the latest.
    """

    table: Table
    rows: HeldOutRows
    test: RegressionTest | ClassificationTest
    choice: Choice
    provenance: Provenance
    method: str
    title: str | None = None
    warnings: tuple[str, ...] = ()
    leaks: Mapping[str, str] = field(default_factory=dict)
    reasons: UncertaintyReasons | None = None
    curve: LearningCurve | None = None
    baselines: tuple[Baseline, ...] = ()
    shift: ErrorShift | None = None
    influence: Influence | None = None

    def __post_init__(self) -> None:
        if len(self.rows.numbers) != len(self.test):
            raise InputError(
                f"rows must have one row per prediction, got {len(self.rows.numbers)} for {len(self.test)} predictions."
            )
        names = tuple(column.name for column in self.table.columns)
        if names != self.rows.names:
            raise InputError(f"rows must have the columns of the table, {names}, got {self.rows.names}.")
        wrong = [baseline.name for baseline in self.baselines if len(baseline.predictions) != len(self.test)]
        if wrong:
            raise InputError(f"baselines must have one prediction per row ({len(self.test)}), but {wrong[0]} has not.")
        for reasons in self.reasons.rows if self.reasons else ():
            if len(reasons.shares) != len(names) or not 0 <= reasons.row < len(self.test):
                raise InputError(
                    f"reasons must have {len(names)} shares, one per column, for rows from 0 to {len(self.test) - 1}, "
                    f"got {len(reasons.shares)} shares for row {reasons.row}."
                )
