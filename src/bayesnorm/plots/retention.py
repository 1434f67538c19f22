"""A plot of the error that is left when the most uncertain points are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import BayesNormError, InputError
from ..metrics import prediction_rejection_ratio, retention_curve
from ..metrics.checks import classification_targets, finite_std, number_vector, regression_targets
from ..predictive import ClassificationPredictive, RegressionPredictive
from . import style
from .thinning import spread_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Dropping the most uncertain points should lower the error"
# Most points of a line that are drawn.
POINTS = 400

# Fewest points kept that a line begins with, or a hundredth of all: a mean of fewer is noise. (Half, of very few.)
FEWEST = 5


@dataclass(frozen=True)
class RetentionPlot:
    """Mean error of the points kept, by kind of uncertainty, of N points.

    Args:
        kept: Shares 1/N, 2/N, ..., 1.
        curves: Mean error of the least uncertain points by kind of uncertainty, each (N,).
        oracle: The same, had the largest errors been dropped first.
        random: The same, had points been dropped at random: the mean error.
        ratio: Prediction-rejection ratio by kind of uncertainty (1: oracle, 0: random), or None where all errors are equal.
        score: Name of the error.
        unit: Unit of the error; "%" where it is a share.
        title: Title, which says what one should see.
    """

    kept: np.ndarray
    curves: dict[str, np.ndarray]
    oracle: np.ndarray
    random: float
    ratio: dict[str, float | None]
    score: str = "mean error"
    unit: str | None = None
    title: str = TITLE

    @classmethod
    def of(
        cls,
        predictive: RegressionPredictive | ClassificationPredictive,
        y: Any,
        *,
        unit: str | None = None,
        ignore_index: int | None = None,
        title: str = TITLE,
    ) -> Self:
        """Compare predictions with their targets.

        Uncertainty and error are standard deviation and absolute error in regression, entropy and error rate in
        classification.

        Args:
            predictive: Predictions on test data.
            y: Test targets.
            unit: Unit of the target of regression.
            ignore_index: Class number of points to leave out.
            title: Title, which says what one should see.
        """
        if isinstance(predictive, ClassificationPredictive):
            target, scored = classification_targets(predictive, y, ignore_index)
            wrong = (predictive.label != target)[scored].double()
            uncertainty = {"entropy": predictive.entropy[scored]}
            return cls.of_arrays(uncertainty, wrong, score="error rate", unit="%", title=title)
        error = (regression_targets(predictive, y) - predictive.mean).abs().flatten()
        uncertainty = {"standard deviation": finite_std(predictive).flatten()}
        return cls.of_arrays(uncertainty, error, score="mean absolute error", unit=unit, title=title)

    @classmethod
    def of_arrays(
        cls,
        uncertainty: Any,
        error: Any,
        *,
        score: str = "mean error",
        unit: str | None = None,
        title: str = TITLE,
    ) -> Self:
        """Take one error per point, and one uncertainty or several kinds of uncertainty by name.

        Args:
            uncertainty: Numbers that grow with uncertainty, (N,); or several such arrays by name.
            error: Any loss that is not negative, (N,).
            score: Name of the mean error.
            unit: Unit of the error; "%" shows shares as percents.
            title: Title, which says what one should see.
        """
        kinds = uncertainty if isinstance(uncertainty, Mapping) else {"uncertainty": uncertainty}
        if not kinds:
            raise BayesNormError("uncertainty: is empty; at least one kind of uncertainty would work.")
        errors = number_vector("error", error, infinite=False).detach()
        if bool((errors < 0).any()):
            raise InputError(f"error: the least is {float(errors.min())}; absolute errors or losses would work.")
        found = {name: retention_curve(values, errors) for name, values in kinds.items()}
        ratios = {
            name: float(prediction_rejection_ratio(values, errors)) if bool(errors.min() < errors.max()) else None
            for name, values in kinds.items()
        }
        oracle = retention_curve(errors, errors)
        return cls(
            kept=oracle.kept.cpu().numpy(),
            curves={name: curve.error.detach().cpu().numpy() for name, curve in found.items()},
            oracle=oracle.error.cpu().numpy(),
            random=float(errors.mean()),
            ratio=ratios,
            score=score,
            unit=unit,
            title=title,
        )

    @property
    def summary(self) -> str:
        """One line of text that says what was measured."""
        parts = [f"{name}: {value:.0%}" for name, value in self.ratio.items() if value is not None]
        if not parts:
            return "all errors are equal"
        return f"share of the possible gain: {', '.join(parts)}".replace("%", " %")

    @property
    def brief(self) -> str:
        """The main number, as text for small panels."""
        ratios = [value for value in self.ratio.values() if value is not None]
        return f"{max(ratios):.0%} of the possible gain".replace("%", " %") if ratios else ""

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure."""
        ax, now = style.axes(ax), style.current()
        first = min(max(FEWEST, len(self.kept) // 100), (len(self.kept) + 1) // 2) - 1
        shown = first + spread_out(len(self.kept) - first, POINTS)
        dropped = 1 - self.kept[shown]
        ax.axhline(self.random, color=now.faint, linestyle="--", linewidth=1.4, label="dropped at random")
        ax.fill_between(dropped, self.oracle[shown], self.random, color=now.faint, alpha=0.1, linewidth=0)
        ax.plot(
            dropped, self.oracle[shown], color=now.ink, linestyle=":", linewidth=1.8, label="largest errors dropped"
        )
        for number, (name, curve) in enumerate(self.curves.items()):
            look = now.look(number)
            label = f"dropped by {name}"
            ax.plot(dropped, curve[shown], color=look.colour, linestyle=look.stroke, linewidth=2.2, label=label)
        style.percent_axis(ax.xaxis)
        if self.unit == "%":
            style.percent_axis(ax.yaxis)
        ax.set_xlim(0, 1)
        highest = max(self.random, *(float(curve[shown].max()) for curve in self.curves.values()))
        ax.set_ylim(0, 1.08 * highest or 1.0)
        ax.set_xlabel("most uncertain points dropped")
        ax.set_ylabel(style.with_unit(f"{self.score} of the rest", None if self.unit == "%" else self.unit))
        style.headline(ax, self.title, self.summary)
        style.legend_below(ax, 3)
        return ax
