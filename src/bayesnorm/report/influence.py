"""What drives predictions and their uncertainty: permutation importance and partial dependence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..plots import style
from ..words import format_day, format_number, format_percent, truncate
from .page_plots import Bars

# Columns in a picture at most, and characters of a name.
MOST_BARS, LONGEST = 8, 24

# Shares smaller than this are not called important.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class ColumnInfluence:
    """How much predictions and their uncertainty depend on a column.

    Args:
        name: Name of the column.
        error: Rise of the error if the values of the column are shuffled over the rows, as a share of the error.
        uncertainty: Mean absolute change of the uncertainty if they are shuffled, as a share of its mean.
    """

    name: str
    error: float
    uncertainty: float


@dataclass(frozen=True)
class PartialDependence:
    """The mean prediction of the same rows if a column has one value in all of them.

    Args:
        name: Name of the column.
        kind: "number", "category" or "date".
        values: Values of the column: numbers (dates as days since 1970) or texts.
        mean: Mean of the predictions, or of the probability of a class, for each value.
        epistemic: Mean epistemic standard deviation, or mutual information in nats.
        total: Mean standard deviation, or entropy in nats.
    """

    name: str
    kind: str
    values: tuple[float | str, ...]
    mean: tuple[float, ...]
    epistemic: tuple[float, ...]
    total: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.mean) == len(self.epistemic) == len(self.total) > 0:
            raise InputError(f"values, mean, epistemic and total of {self.name!r} must have equal lengths.")


@dataclass(frozen=True)
class Influence:
    """The influence of all columns.

    Args:
        score: Name of the error, such as "CRPS".
        rows: Number of rows that it was measured on.
        output: What is predicted: the target, or the probability of a class.
        uncertainty: Name of the uncertainty, such as "epistemic standard deviation".
        columns: The influence of each column.
        dependence: Partial dependence on the columns with the largest rise of the error, the largest first.
    """

    score: str
    rows: int
    output: str
    uncertainty: str
    columns: tuple[ColumnInfluence, ...]
    dependence: tuple[PartialDependence, ...]

    def bars(self, by: str) -> Bars:
        """Return a plot of the columns with the largest influence on the "error" or the "uncertainty"."""
        ordered = sorted(self.columns, key=lambda column: -getattr(column, by))[:MOST_BARS]
        names = tuple(truncate(column.name, LONGEST) for column in ordered)
        shares = tuple(float(getattr(column, by)) for column in ordered)
        if by == "error":
            title, axis = f"Predictions need {_leaders(names, shares)}", f"rise of the {self.score} if shuffled"
        else:
            title, axis = (
                f"The uncertainty depends on {_leaders(names, shares)}",
                "mean change if shuffled",
            )
        return Bars(title, names, shares, axis)

    @property
    def words(self) -> str:
        """Sentences about the columns that matter most."""
        ordered = sorted(self.columns, key=lambda column: -column.error)
        best = ordered[0]
        if best.error < LEAST_SHARE:
            return f"Shuffling a single column hardly changes the {self.score} of these predictions."
        idle = [column for column in ordered if column.error < LEAST_SHARE]
        text = (
            f"If the values of {best.name} are shuffled over {self.rows:,} rows, the {self.score} rises by "
            f"{format_percent(best.error)}."
        )
        if idle and len(ordered) > 1:
            text += f" For {len(idle)} of {len(ordered)} columns it rises by less than {format_percent(LEAST_SHARE)}."
        return text


def _leaders(names: tuple[str, ...], shares: tuple[float, ...]) -> str:
    """Name the first column, or the first two if they are close."""
    if not names or shares[0] < LEAST_SHARE:
        return "no single column"
    return names[0] if len(names) == 1 or shares[1] < 0.5 * shares[0] else f"{names[0]} and {names[1]}"


@dataclass(frozen=True)
class DependencePlot:
    """A partial dependence as a picture: the mean with its uncertainty.

    Args:
        dependence: The values.
        output: What is predicted.
        bands: Whether the uncertainty has the unit of the mean, so that both fit on one axis.
    """

    dependence: PartialDependence
    output: str
    bands: bool

    @property
    def title(self) -> str:
        return f"{self.output} by {truncate(self.dependence.name, LONGEST)}"

    @property
    def caption(self) -> str:
        """What the picture shows, with the values at both ends."""
        part = self.dependence
        low, high = int(np.argmin(part.mean)), int(np.argmax(part.mean))
        shown = [self._value(part.values[at]) for at in (low, high)]
        least, most = (format_number(part.mean[at], 3) for at in (low, high))
        where = int(np.argmax(part.epistemic))
        return (
            f"On average over the same rows, the prediction is {least} at {shown[0]} and {most} at {shown[1]}. The "
            f"epistemic uncertainty is largest at {self._value(part.values[where])}."
        )

    def _value(self, value: float | str) -> str:
        if isinstance(value, str):
            return f"“{truncate(value, LONGEST)}”"
        if self.dependence.kind == "date":
            return format_day(value)[:10]
        return format_number(value, 4).replace(",", "")  # 2019 may be a year

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax`, or into a new figure."""
        ax, now, part = style.axes(ax), style.current(), self.dependence
        mean, epistemic, total = (np.array(values) for values in (part.mean, part.epistemic, part.total))
        texts = isinstance(part.values[0], str)
        places = np.arange(len(mean)) if texts else np.array(part.values, dtype=float)
        if self.bands and texts:
            ax.errorbar(places, mean, total, fmt="none", color=now.backdrop, linewidth=5, label="± total")
            ax.errorbar(places, mean, epistemic, fmt="none", color=now.rival, linewidth=2, label="± epistemic")
        elif self.bands:
            ax.fill_between(places, mean - total, mean + total, color=now.backdrop, alpha=0.5, lw=0, label="± total")
            ax.fill_between(places, mean - epistemic, mean + epistemic, color=now.rival, alpha=0.35, lw=0,
                            label="± epistemic")  # fmt: skip
        else:
            ax.plot(places, epistemic, "s:", color=now.rival, ms=4, label="mutual information (nats)")
        ax.plot(places, mean, "o" if texts else "o-", color=now.model, ms=4, label="mean prediction")
        if texts:
            names = [style.without_formulas(truncate(str(value), 12)) for value in part.values]
            ax.set_xticks(places, names, rotation=30 if len(names) > 4 else 0)
        elif part.kind == "date":
            ax.set_xticks([places[0], places[-1]], [format_day(float(places[at]))[:10] for at in (0, -1)])
        ax.set(xlabel=style.without_formulas(part.name), ylabel=style.without_formulas(self.output))
        style.legend(ax, loc="best")
        style.headline(ax, style.without_formulas(self.title))
        return ax
