"""How the error falls with the number of rows: as measured, with more rows than there are, and down to the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..errors import InputError
from ..plots import style
from .words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Share of the squared error that more rows must be able to take away before they are worth a word.
CLEAR_SHARE = 0.1

# Share of a guess's squared error that is noise, above which the columns tell hardly anything.
ALL_NOISE = 0.9

# How many times as many rows the curve is drawn for.
TIMES = (2, 4)


@dataclass(frozen=True)
class LearningCurve:
    """Errors on rows that were not learned from, by the number of rows that were: mean squares, in the target's units
    squared, or of class probabilities (Brier).

    Args:
        rows: Numbers of rows that single networks learned from, the fewest first; two or more.
        errors: Error of single networks for each of these.
        error: Error of the model on the report's rows; its networks each learned from the last number of rows.
        share: Share of it that more rows could take away.
        exponent: The power of the number of rows with which that falls.
        guess: Error of always answering the average, or the shares of classes.
        measure: What readers see of an error: "RMSE", its root, or "Brier" as it is.
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
                f"rows: {list(self.rows)} with {len(self.errors)} errors; two numbers or more, the fewest first, with "
                "an error for each would work."
            )
        if not 0 <= self.share <= 1:
            raise InputError(f"share must be 0 to 1, got {self.share:g}.")

    @property
    def floor(self) -> float:
        """The error that no number of rows could take away: noise that the columns do not explain."""
        return self.error * (1 - self.share)

    @property
    def explains_little(self) -> bool:
        """Whether what the columns could tell at all is hardly anything."""
        return self.floor > ALL_NOISE * self.guess

    @property
    def helps(self) -> bool:
        """Whether more rows would clearly lower the error."""
        return self.share > CLEAR_SHARE and not self.explains_little

    def at(self, times: float) -> float:
        """Return the model's error, as readers see it, with so many times as many rows."""
        return self.shown(self.floor + (self.error - self.floor) * times**-self.exponent)

    def shown(self, error: float) -> float:
        """Return an error as readers see it."""
        return math.sqrt(error) if self.measure == "RMSE" else error

    @property
    def title(self) -> str:
        return f"More rows would {'lower' if self.helps else 'hardly lower'} the error"

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure: single networks, the model with more rows, and the floor of noise."""
        ax, now = style.axes(ax), style.current()
        single = [self.shown(error) for error in self.errors]
        ax.set_xscale("log")
        ax.plot(self.rows, single, "s-", color=now.dots, linewidth=1.6, ms=5, label="one network, measured")
        last, steps = self.rows[-1], np.geomspace(1, TIMES[-1], 40)
        ax.plot(last * steps, [self.at(step) for step in steps], "--", color=now.model, label="the model, expected")
        ax.plot([last], [self.at(1)], "o", color=now.model, ms=8, label="the model now")
        ax.plot([last * times for times in TIMES], [self.at(each) for each in TIMES], "o", color=now.model, mfc="none")
        if self.floor > 0:
            ax.axhline(self.shown(self.floor), color=now.rival, linewidth=1.4, linestyle=":", label="noise")
        for times in (1, *TIMES):
            style.annotate(ax, number(self.at(times), 3), (last * times, self.at(times)), (7, 5), color=now.ink)
        places = [*self.rows, *(last * times for times in TIMES)]
        ax.set_xticks(places, [f"{place:,}" for place in places])
        ax.minorticks_off()
        ax.set_xlim(places[0] / 1.25, places[-1] * 1.4)
        ax.set_ylim(0, 1.15 * max(*single, self.at(1)) or 1.0)
        ax.set_xlabel("rows that each network learns from")
        ax.set_ylabel("typical error (RMSE)" if self.measure == "RMSE" else "squared error (Brier)")
        style.legend(ax, loc="best")
        style.headline(ax, self.title)
        return ax
