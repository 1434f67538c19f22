"""What `bayesnorm fit` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .holding_out import Holdout
from .task import Task

DATES = ("date", "day-first", "month-first")
"""What a column of dates can be said to be."""

KINDS = ("category", "number", "text", *DATES)
"""What any column can be said to be."""


class Device(StrEnum):
    """Where networks are trained, as the estimators of `bayesnorm.tabular` take it."""

    cpu = "cpu"
    cuda = "cuda"
    auto = "auto"


@dataclass(frozen=True)
class FitOptions:
    """What to train, and how; kept in the run's folder by these names.

    Args:
        target: The column to predict.
        task: What to predict it as; None to guess.
        method: Where uncertainty comes from, as `BayesNormRegressor` takes it.
        drop: Columns to leave out.
        keep: Columns to learn from even where nothing seems to be learned from them.
        categorical: Columns whose numbers are categories.
        read_as: What columns are, by name: one of `KINDS`, of which "text" is left out.
        test_fraction: Part of the rows that only the report sees; None for a fifth, or of few rows none.
        holdout: Which rows these are.
        time: The column that says which rows come later; None for the order of the file.
        group: The column that says which rows belong together; None where each is alone.
        seed: Seed of all that is left to chance.
        epochs: Passes over the rows; None to choose.
        hidden: Units of each hidden layer; None to choose.
        members: Number of networks; None for the estimator's own.
        fast: Whether to try one setting alone, for half as long.
        interruptible: Whether Ctrl-C keeps what is trained so far.
        conformal: Whether intervals come with a guarantee.
        homoscedastic: Whether all rows have one noise.
        effective_batch_size: How samples are scaled, as `BayesNormRegressor` takes it; None for the estimator's own way.
        device: Where networks are trained.
        max_rows: Most rows, drawn at random; None for all.
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
    seed: int
    epochs: int | None
    hidden: tuple[int, ...] | None
    members: int | None
    fast: bool
    interruptible: bool
    conformal: bool
    homoscedastic: bool
    effective_batch_size: str | float | None
    device: Device
    max_rows: int | None
