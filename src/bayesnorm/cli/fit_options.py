"""The options of `bayesnorm fit`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .holding_out import Holdout
from .task import Task

DATES = ("date", "day-first", "month-first")
"""The values of `--as` for columns of dates."""

KINDS = ("category", "number", "text", *DATES)
"""All values of `--as`."""


class Device(StrEnum):
    """The device that trains the networks, named as for the estimators of `bayesnorm.tabular`."""

    cpu = "cpu"
    cuda = "cuda"
    auto = "auto"


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
        test_fraction: Fraction of rows held out for the report; None for 0.2, or for cross-validation on small tables.
        holdout: Which rows are held out.
        time: The column that orders the rows by time; None for the order of the file.
        group: The column whose equal values keep rows together; None for no groups.
        seed: The random seed.
        epochs: Number of epochs; None chooses it by cross-validation.
        hidden: Units of each hidden layer; None chooses them by cross-validation.
        members: Number of networks; None for the estimator's default.
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
