"""A plot of the mean error of the remaining points after the most uncertain ones are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..errors import BayesNormError, InputError
from ..metrics import (
    classification_targets,
    finite_std,
    number_vector,
    prediction_rejection_ratio,
    regression_targets,
    retention_curve,
)
from ..predictive import ClassificationPredictive, RegressionPredictive
from . import style

TITLE = "Dropping the most uncertain points should lower the error"
# The largest number of points on a line.
POINTS = 400

# A line starts with at least this many points kept, and at least 1 % of all, because a mean of fewer is noise.
FEWEST = 5


@dataclass(frozen=True)
class RetentionPlot:
    """Mean error of the points kept, out of N points, for one or more measures of uncertainty.

    Args:
        retained: Fractions of points kept, 1/N, 2/N, ..., 1.
        curves: Mean error of the points kept by name of the measure, such as "predictive entropy", each (N,).
        oracle: The same if the largest errors are dropped first.
        random: The same if points are dropped at random: the mean error of all points.
        ratio: Prediction rejection ratio by name of the measure (1: oracle, 0: random); None if all errors are equal.
        score: Name of the mean error.
        unit: Unit of the error; "%" if it is a share.
        title: The title.
    """

    retained: np.ndarray
    curves: dict[str, np.ndarray]
    oracle: np.ndarray
    random: float
    ratio: dict[str, float | None]
    score: str = "mean error"
    unit: str | None = None
    title: str = TITLE

    @classmethod
    def from_predictive(
        cls,
        predictive: RegressionPredictive | ClassificationPredictive,
        y: Any,
        *,
        ignore_index: int | None = None,
        **labels: Any,
    ) -> Self:
        """Return the plot of predictions and their targets.

        For regression, it shows the mean absolute error by total standard deviation. For classification, it shows the
        error rate by predictive entropy.

        Args:
            predictive: Predictions on test data.
            y: Test targets.
            ignore_index: Class number of points to leave out.
            **labels: `title`, and for regression the `unit` of the target.
        """
        if isinstance(predictive, ClassificationPredictive):
            target, scored = classification_targets(predictive, y, ignore_index)
            wrong = (predictive.label != target)[scored].double()
            uncertainty = {"predictive entropy": predictive.entropy[scored]}
            return cls.from_arrays(uncertainty, wrong, **{**labels, "score": "error rate", "unit": "%"})
        error = (regression_targets(predictive, y) - predictive.mean).abs().flatten()
        uncertainty = {"total standard deviation": finite_std(predictive).flatten()}
        return cls.from_arrays(uncertainty, error, score="mean absolute error", **labels)

    @classmethod
    def from_arrays(cls, uncertainty: Any, error: Any, **labels: Any) -> Self:
        """Return the plot for one error per point, and one or more measures of uncertainty.

        Args:
            uncertainty: A measure of uncertainty, such as an entropy, (N,); or several by name.
            error: Any loss that is not negative, (N,).
            **labels: `score`, `unit` and `title`.
        """
        kinds = uncertainty if isinstance(uncertainty, Mapping) else {"uncertainty": uncertainty}
        if not kinds:
            raise BayesNormError("uncertainty is empty. Pass at least one measure of uncertainty.")
        errors = number_vector("error", error, infinite=False).detach()
        if bool((errors < 0).any()):
            raise InputError(f"error must not be negative, got {float(errors.min())}. Pass absolute errors or losses.")
        curves = {name: retention_curve(values, errors).error for name, values in kinds.items()}
        differ, oracle = bool(errors.min() < errors.max()), retention_curve(errors, errors)
        return cls(
            retained=oracle.retained.cpu().numpy(),
            curves={name: curve.detach().cpu().numpy() for name, curve in curves.items()},
            oracle=oracle.error.cpu().numpy(),
            random=float(errors.mean()),
            ratio={
                name: float(prediction_rejection_ratio(values, errors)) if differ else None
                for name, values in kinds.items()
            },
            **labels,
        )

    @property
    def summary(self) -> str:
        """The main result in one line."""
        parts = [f"{name} {value:.0%}" for name, value in self.ratio.items() if value is not None]
        if not parts:
            return "all errors are equal"
        return f"share of the possible error reduction: {', '.join(parts)}".replace("%", " %")

    @property
    def brief(self) -> str:
        """The main number, for small panels."""
        ratios = [value for value in self.ratio.values() if value is not None]
        return f"{max(ratios):.0%} of the possible error reduction".replace("%", " %") if ratios else ""

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax), style.current()
        first = min(max(FEWEST, len(self.retained) // 100), (len(self.retained) + 1) // 2) - 1
        shown = first + style.spread_out(len(self.retained) - first, POINTS)
        dropped, oracle = 1 - self.retained[shown], self.oracle[shown]
        ax.axhline(self.random, color=now.faint, linestyle="--", linewidth=1.4, label="dropped at random")
        ax.fill_between(dropped, oracle, self.random, color=now.faint, alpha=0.1, linewidth=0)
        ax.plot(dropped, oracle, color=now.ink, linestyle=":", linewidth=1.8, label="largest errors dropped first")
        for number, (name, curve) in enumerate(self.curves.items()):
            look = now.look(number)
            label = f"dropped by {name}"
            ax.plot(dropped, curve[shown], color=look.colour, linestyle=look.stroke, linewidth=2.2, label=label)
        style.percent_axis(ax.xaxis)
        if self.unit == "%":
            style.percent_axis(ax.yaxis)
        highest = max(self.random, *(float(curve[shown].max()) for curve in self.curves.values()))
        ax.set(xlim=(0, 1), ylim=(0, 1.08 * highest or 1.0))
        ax.set_xlabel("fraction of points dropped, most uncertain first")
        ax.set_ylabel(style.with_unit(f"{self.score} of kept points", None if self.unit == "%" else self.unit))
        return style.finish(ax, self.title, self.summary, legend_columns=3)
