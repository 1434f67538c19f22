"""A plot of a function of one variable: predictive mean, intervals, training points and a constant baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from bayesnorm.engines import Engine
from bayesnorm.errors import InputError
from bayesnorm.metrics.checks import real_tensor
from bayesnorm.plots import style
from bayesnorm.plots.uncertainty_error import QUANTILES
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import RegressionPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Prediction intervals should widen where there are no data"


@dataclass(frozen=True)
class FunctionBands:
    """Predictive mean and bands of a function, each (points,).

    Args:
        x: Inputs of the predictions, in increasing order.
        mean: The predictive mean.
        bands: Central prediction intervals (lower, upper) by level.
        constant_std: Standard deviation of the baseline with constant standard deviation, or None.
        title: The title.
    """

    x: np.ndarray
    mean: np.ndarray
    bands: dict[float, tuple[np.ndarray, np.ndarray]]
    constant_std: float | None = None
    title: str = TITLE

    @classmethod
    def from_posterior(
        cls,
        posterior: Posterior,
        x: Any,
        *,
        levels: tuple[float, ...] = (0.95, 0.5),
        constant_std: float | None = None,
        engine: Engine | None = None,
        seed: int = 0,
        title: str = TITLE,
    ) -> Self:
        """Return the plot of predictions by a posterior of a network with one input and one output.

        Args:
            posterior: A regression posterior.
            x: Inputs to predict, (points, 1) or (points,), in increasing order.
            levels: Nominal probabilities of the central intervals.
            constant_std: Standard deviation of a constant baseline, whose 95 % interval is drawn as dashed lines.
            engine: The engine for predictions. [default: that of the posterior]
            seed: Seed of the samples.
            title: The title.
        """
        points = real_tensor("x", x).double().reshape(-1, 1)
        predictive = posterior.predict(points, engine, seed)
        if not isinstance(predictive, RegressionPredictive) or predictive.mean.numel() != len(points):
            raise InputError(
                "posterior must predict one real output per example, got a "
                f"{type(predictive).__name__} of shape {tuple(predictive.mean.shape)}."
            )

        def flat(value: torch.Tensor) -> np.ndarray:
            return value.reshape(-1).double().cpu().numpy()

        bands = {level: predictive.interval(level) for level in levels}
        return cls(
            x=flat(points),
            mean=flat(predictive.mean),
            bands={level: (flat(lower), flat(upper)) for level, (lower, upper) in bands.items()},
            constant_std=constant_std,
            title=title,
        )

    def draw(self, ax: Axes | None = None, *, points: tuple[Any, Any] | None = None) -> Axes:
        """Draw into `ax` or a new figure, and return the axes; `points` are training inputs and targets."""
        ax, now = style.axes(ax), style.current()
        for number, level in enumerate(sorted(self.bands, reverse=True)):
            lower, upper = self.bands[level]
            alpha = min(0.6, 0.2 + 0.18 * number)
            label = f"{style.percent(level)} interval"
            ax.fill_between(self.x, lower, upper, color=now.model, alpha=alpha, linewidth=0, label=label)
        ax.plot(self.x, self.mean, color=now.model, linewidth=2.0, label="predictive mean")
        if self.constant_std is not None:
            half = QUANTILES[0.95] * self.constant_std
            edges = np.stack([self.mean - half, self.mean + half], axis=1)
            names = ["95 % interval, constant standard deviation", "_other edge"]
            ax.plot(self.x, edges, color=now.rival, linestyle="--", linewidth=1.4, label=names)
        if points is not None:
            at, values = (real_tensor("points", part).detach().double().cpu().flatten().numpy() for part in points)
            ax.scatter(at, values, s=22, color=now.ink, zorder=3, label="training points")
        ax.margins(x=0)
        ax.set_xlabel("x")
        ax.set_ylabel("y")
        style.headline(ax, self.title)
        style.legend_below(ax, 3)
        return ax
