"""The contents of a report: plain values, as whoever trained the model knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import InputError
from .classification import ClassificationTest
from .learning_curve import LearningCurve
from .regression import RegressionTest

Value = float | int | str


@dataclass(frozen=True)
class Column:
    """One column of the table, as its training rows have it.

    Args:
        name: Name of the column in the file's first line.
        kind: "number", "category", or "date", whose numbers are days since 1970.
        low, median, high: Least, median and greatest value of a column of numbers or dates.
        categories: The categories of a column of these.
        missing: Number of the file's rows that lack it.
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
                f'kind: {self.kind!r} was given for {self.name!r}; "number", "category" or "date" would work.'
            )


@dataclass(frozen=True)
class Table:
    """The table that the model was trained on.

    Args:
        file: Name of the file.
        rows: Number of all rows that were used, test rows too.
        train_rows: Number of rows that the network was trained on.
        validation_rows: Number of rows kept for choosing alone; 0 where choices were made by cross-validation.
        columns: The inputs, in the file's order.
        target: The column that is predicted.
        cross_validated: Whether all rows judge it, each predicted by networks that were trained on the others.
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
    """The inputs of all test rows, in the order of the test's arrays.

    Args:
        names: Names of the columns.
        values: One sequence per row, which holds for every column a number (of a date its days since 1970), a text, or
            None where it is missing.
        numbers: Number of each row in the file; the first after the header is 1.
        why: Why each row is unlike those of training, in parts with "; " between them that begin with the name of a
            column where one is the reason, or ""; empty where nobody said.
    """

    names: tuple[str, ...]
    values: Sequence[Sequence[object]]
    numbers: Sequence[int]
    why: Sequence[str] = ()

    def __post_init__(self) -> None:
        if len(self.values) != len(self.numbers):
            raise InputError(f"numbers: {len(self.numbers)} for {len(self.values)} rows; one per row would work.")
        wrong = [len(row) for row in self.values if len(row) != len(self.names)]
        if wrong:
            raise InputError(f"values: a row of {wrong[0]} values; {len(self.names)}, one per column, would work.")


@dataclass(frozen=True)
class RowReasons:
    """What the columns of a uncertain row add to its epistemic part.

    Args:
        row: Place of the row among the test rows.
        total: Its epistemic part: a variance, or nats.
        baseline: That of a usual row, which it is held against.
        shares: For each column, in the table's order, its part of all that makes for uncertainty: what a usual row has, and
            what columns add to it. Below 0 where a column takes uncertainty away.
        words: The columns that add most, such as "area 64 %, town 20 %"; "" where none adds much.
    """

    row: int
    total: float
    baseline: float
    shares: tuple[float, ...]
    words: str


@dataclass(frozen=True)
class UncertaintyReasons:
    """Why the model doubts the rows with the largest epistemic part.

    Args:
        explained: Number of rows that were looked at.
        first: For each column that adds most to some of them, the share of rows; the most common first.
        rows: The most uncertain of them, the most uncertain first.
    """

    explained: int
    first: Mapping[str, float]
    rows: tuple[RowReasons, ...]


@dataclass(frozen=True)
class TriedSetting:
    """One way of training that was tried, with its score.

    Args:
        values: Values by name, such as {"weight decay": 0.01}.
        score: Its score.
        error: Standard error of the score over folds, if there is one.
    """

    values: Mapping[str, Value]
    score: float
    error: float | None = None


@dataclass(frozen=True)
class Choice:
    """The choice of the model among the settings that were tried.

    Args:
        settings: All settings that were tried; none where nothing was to choose.
        chosen: Place of the chosen one among them.
        score: Name of the score that was compared, such as "mean CRPS".
        better: Whether "lower" or "higher" scores are better.
        folds: Number of folds of the cross-validation.
        seconds: Time that it took.
        also: Values that were settled afterwards, by name.
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
            raise InputError(f"chosen: {self.chosen} was given for {len(self.settings)} settings; a place among them.")
        if self.better not in ("lower", "higher"):
            raise InputError(f'better: {self.better!r} was given; "lower" or "higher" would work.')


@dataclass(frozen=True)
class Provenance:
    """The origin of the model.

    Args:
        versions: Versions of the software, by name.
        hardware: The machine that it was trained on.
        date: Date of the training.
        command: Command that makes it again.
        seconds: Time that everything took.
    """

    versions: Mapping[str, str]
    hardware: str
    date: str
    command: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything that the page shows.

    Args:
        table: The table that the model was trained on.
        rows: Inputs of the test rows.
        test: Predictions for the test rows; its class says whether this is regression or classification.
        choice: The choice of the model among the settings that were tried.
        provenance: Versions, machine and date.
        method: A sentence or two about how it predicts.
        title: Title of the page; None for "<target> from <file>".
        warnings: Sentences that the reader must see.
        leaks: Columns that alone give the target away, and how, as the rest of a sentence "It ...".
        reasons: Why it doubts the rows that it doubts most; None where nobody asked.
        curve: How the error falls with the number of rows; None where nobody looked.
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

    def __post_init__(self) -> None:
        if len(self.rows.numbers) != len(self.test):
            raise InputError(f"rows: {len(self.rows.numbers)} of them for {len(self.test)} predictions; one each.")
        names = tuple(column.name for column in self.table.columns)
        if names != self.rows.names:
            raise InputError(f"rows: have the columns {self.rows.names}; those of the table, {names}, would work.")
        for each in self.reasons.rows if self.reasons else ():
            if len(each.shares) != len(names) or not 0 <= each.row < len(self.test):
                raise InputError(
                    f"reasons: {len(each.shares)} shares for row {each.row}; one for each of {len(names)} columns of a "
                    f"row from 0 to {len(self.test) - 1} would work."
                )
