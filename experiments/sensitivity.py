"""Plot a score over the batch size or the number of samples: means over runs, with standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELS = 8
"""Most tick labels on the axis."""


@dataclass(frozen=True)
class Scores:
    """One series of a `SensitivityCurve`, each (points,).

    Args:
        at: Batch sizes or numbers of samples, rising.
        mean: Mean score over runs.
        standard_error: Standard error of that mean; NaN for a single run.
        runs: Number of runs.
    """

    at: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray
    runs: np.ndarray


@dataclass(frozen=True)
class SensitivityCurve:
    """Scores over batch sizes or numbers of samples, with references.

    Args:
        series: Scores by name.
        axis: Name of the x axis.
        score: Name of the score, with its unit.
        reference: Published values at some places, by name.
        baseline: Score of a baseline, or None.
        baseline_name: Name of the baseline.
        title: Title, which says what the plot shows; empty for the axes' names.
    """

    series: dict[str, Scores]
    axis: str
    score: str
    reference: dict[str, dict[float, float]] = field(default_factory=dict)
    baseline: float | None = None
    baseline_name: str = "constant uncertainty"
    title: str = ""

    @classmethod
    def from_runs(
        cls,
        runs: Mapping[str, Mapping[float, Sequence[float]]],
        axis: str = "batch size M",
        score: str = "score",
        *,
        reference: Mapping[str, Mapping[float, float]] | None = None,
        baseline: float | None = None,
        baseline_name: str = "constant uncertainty",
        title: str = "",
    ) -> Self:
        """Return the curve of the scores of all runs.

        Args:
            runs: Scores, one per run, by name of the series and then by batch size or number of samples.
            axis: Name of the inner keys.
            score: Name of the score, with its unit.
            reference: Published values by name and then by place, drawn as hollow marks in the colour of the series of
                the same name.
            baseline: Score of a baseline, drawn as a dashed line.
            baseline_name: Name of the baseline.
            title: Title, which says what the plot shows.
        """
        if not runs:
            raise BayesNormError("runs is empty. Pass at least one series.")
        series = {name: _scores(name, by_place) for name, by_place in runs.items()}
        published = {
            name: {_place(name, place): float(value) for place, value in values.items()}
            for name, values in (reference or {}).items()
        }
        return cls(series, axis, score, published, baseline, baseline_name, title)

    def draw(self, ax: Axes | None = None) -> Axes:
        """Plot into `ax`, or into a new figure: lines with bars of one standard error."""
        ax, now = style.axes(ax), style.current()
        ax.set_xscale("log", base=2)
        looks = {name: now.look(number) for number, name in enumerate(self.series)}
        if self.baseline is not None:
            name = self.baseline_name
            ax.axhline(self.baseline, color=now.faint, linestyle="--", linewidth=1.4, zorder=1.5, label=name)
        for name, result in self.series.items():
            look = looks[name]
            ax.errorbar(
                result.at,
                result.mean,
                np.nan_to_num(result.standard_error),
                color=look.colour,
                linestyle=look.stroke,
                marker=look.marker,
                linewidth=1.8,
                elinewidth=1.2,
                capsize=2.5,
                label=name,
            )
        for number, (name, values) in enumerate(self.reference.items()):
            own_look = looks.get(name)
            ax.plot(
                list(values),
                list(values.values()),
                linestyle="none",
                marker=own_look.marker if own_look else style.MARKERS[number % len(style.MARKERS)],
                markersize=1.8 * style.matplotlib().rcParams["lines.markersize"],
                markerfacecolor="none",
                markeredgecolor=own_look.colour if own_look else now.ink,
                markeredgewidth=1.2,
                zorder=4,
                label=f"{name}, published" if own_look else name,
            )
        places = sorted({float(place) for result in self.series.values() for place in result.at} | self._published())
        labelled = places[:: -(-len(places) // MOST_LABELS)]
        ax.set_xticks(labelled, [f"{place:g}" for place in labelled])
        ax.minorticks_off()
        ax.set_xlim(places[0] / 1.3, places[-1] * 1.3)
        ax.set_xlabel(self.axis)
        ax.set_ylabel(self.score)
        style.headline(ax, self.title or f"{self.score}, over {self.axis}")
        style.legend(ax)
        return ax

    def _published(self) -> set[float]:
        """Return the places of all published values."""
        return {place for values in self.reference.values() for place in values}


def _scores(name: str, by_place: Mapping[float, Sequence[float]]) -> Scores:
    """Check the scores of one series, and average them over runs."""
    if not by_place:
        raise BayesNormError(f"runs: {name!r} has no scores. Pass at least one place with one run.")
    places = sorted(by_place, key=float)
    runs = [np.atleast_1d(np.asarray(by_place[place], dtype=float)) for place in places]
    for place, values in zip(places, runs, strict=True):
        if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
            raise InputError(f"runs: {name!r} at {place} has {by_place[place]}. Pass finite scores of runs.")
    count = np.array([len(values) for values in runs])
    return Scores(
        at=np.array([_place(name, place) for place in places]),
        mean=np.array([values.mean() for values in runs]),
        standard_error=np.array(
            [values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan for values in runs]
        ),
        runs=count,
    )


def _place(name: str, place: float) -> float:
    """Check a place on the logarithmic axis."""
    if not float(place) > 0:
        raise BayesNormError(f"runs: {name!r} has scores at {place}, but the axis is logarithmic. Pass positive sizes.")
    return float(place)
