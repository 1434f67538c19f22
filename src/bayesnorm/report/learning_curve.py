"""How the error falls with the number of rows: measured, extrapolated to more rows, and limited by noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import InputError
from ..plots import style
from ..words import format_number

# More rows help if they could remove more than this share of the squared error.
CLEAR_SHARE = 0.1

# If noise is more than this share of the squared error of the baseline, the columns explain hardly anything.
ALL_NOISE = 0.9

# The curve is extrapolated to these multiples of the number of rows.
TIMES = (2, 4)


@dataclass(frozen=True)
class LearningCurve:
    """Errors on held-out rows, by the number of training rows.

    Errors are mean squared errors, in the squared units of the target, or Brier scores of class probabilities.

    Args:
        rows: Numbers of training rows of single networks, ascending; two or more.
        errors: Error of single networks for each of these numbers.
        error: Error of the model on the held-out rows. Its networks are trained on the last number of rows.
        share: Share of this error that more rows could remove.
        exponent: That share falls with the number of rows to the power of minus `exponent`.
        guess: Error of always answering the average, or the class frequencies.
        measure: How errors are shown: "RMSE" for the root, or "Brier" as they are.
    """

    rows: tuple[int, ...]
    errors: tuple[float, ...]
    error: float
    share: float
    exponent: float
    guess: float
    measure: Literal["RMSE", "Brier"]

    def __post_init__(self) -> None:
        ascending = sorted(set(self.rows)) == list(self.rows) and min(self.rows, default=0) > 0
        if len(self.rows) < 2 or len(self.rows) != len(self.errors) or not ascending:
            raise InputError(
                f"rows must be two or more ascending numbers with one error each, got {list(self.rows)} with "
                f"{len(self.errors)} errors."
            )
        if not 0 <= self.share <= 1:
            raise InputError(f"share must be between 0 and 1, got {self.share:g}.")

    @property
    def floor(self) -> float:
        """The error that no number of rows could remove: noise that the columns do not explain."""
        return self.error * (1 - self.share)

    @property
    def explains_little(self) -> bool:
        """Whether the columns explain hardly anything, however many rows there are."""
        return self.floor > ALL_NOISE * self.guess

    @property
    def helps(self) -> bool:
        """Whether more rows would clearly lower the error."""
        return self.share > CLEAR_SHARE and not self.explains_little

    def at(self, times: float) -> float:
        """Return the expected error of the model, as shown, with `times` as many rows."""
        return self.shown(self.floor + (self.error - self.floor) * times**-self.exponent)

    def shown(self, error: float) -> float:
        """Return an error as the report shows it."""
        return math.sqrt(error) if self.measure == "RMSE" else error

    @property
    def title(self) -> str:
        return f"More rows would {'lower' if self.helps else 'hardly lower'} the error"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure: single networks, the model with more rows, and the noise."""
        ax, now = style.axes(ax), style.current()
        single = [self.shown(error) for error in self.errors]
        ax.set_xscale("log")
        ax.plot(self.rows, single, "s-", color=now.dots, linewidth=1.6, ms=5, label="one network, measured")
        last, steps = self.rows[-1], np.geomspace(1, TIMES[-1], 40)
        ax.plot(last * steps, [self.at(step) for step in steps], "--", color=now.model, label="the model, expected")
        ax.plot([last], [self.at(1)], "o", color=now.model, ms=8, label="the model now")
        later = [last * times for times in TIMES]
        ax.plot(later, [self.at(times) for times in TIMES], "o", color=now.model, mfc="none")
        if self.floor > 0:
            ax.axhline(self.shown(self.floor), color=now.rival, linewidth=1.4, linestyle=":", label="noise")
        for times in (1, *TIMES):
            style.annotate(ax, format_number(self.at(times), 3), (last * times, self.at(times)), (7, 5), color=now.ink)
        places = [*self.rows, *later]
        ax.set_xticks(places, [f"{place:,}" for place in places])
        ax.minorticks_off()
        ax.set(xlim=(places[0] / 1.25, places[-1] * 1.4), ylim=(0, 1.15 * max(*single, self.at(1)) or 1.0))
        error = "typical error (RMSE)" if self.measure == "RMSE" else "squared error (Brier)"
        ax.set(xlabel="training rows of each network", ylabel=error)
        style.legend(ax, loc="best")
        style.headline(ax, self.title)
        return ax
