"""Predictions of a number for held-out rows, their scores, and those of what needs no model."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from ..metrics import VARIANCE_FLOOR, optimal_crps, pit, pll_points
from ..metrics.arguments import finite_std, regression_targets
from ..predictive import RegressionPredictive
from ..predictive.regression import gaussian_crps, require_level
from .arrays import Array, flags, flat, per_row

VECTORS = ("y", "mean", "std", "epistemic_std", "aleatoric_std", "lower", "upper", "pit", "log_density")


@dataclass(frozen=True)
class RegressionScores:
    """Means over the test rows, in the target's units where they have any.

    Args:
        rmse: Root mean squared error; lower is better.
        r2: Share of the test targets' variance that is explained; 1 is best, 0 their mean.
        crps: Continuous ranked probability score of the Gaussian with the same moments; lower is better.
        normalised_crps: 100 is the best Gaussian for every row, 0 the one error bar; None where these are equal, and
            for predictions that have means of their own.
        pll: Predictive log likelihood, in nats; higher is better.
        coverage: Share of the targets within the intervals.
    """

    rmse: float
    r2: float
    crps: float
    normalised_crps: float | None
    pll: float
    coverage: float


@dataclass(frozen=True)
class RegressionTest:
    """What was predicted for N held-out rows, and what came; every array (N,), in the target's units.

    Args:
        y: Targets.
        mean, std: Of the predictive distributions.
        epistemic_std, aleatoric_std: Its two parts: the draws' disagreement, and noise.
        lower, upper: Central intervals.
        pit: Predictive probability of a target at or below y; by the intervals, where these are not the predictive's
            own.
        log_density: Log of the predictive density at y.
        train_mean, train_std: Of the training targets: all that a guess needs.
        constant_std: The one error bar for all rows about the same means, from validation rows.
        level: Probability of the intervals.
        unlike: Rows unlike the training data, bool; None where nobody looked.
    """

    y: Array
    mean: Array
    std: Array
    epistemic_std: Array
    aleatoric_std: Array
    lower: Array
    upper: Array
    pit: Array
    log_density: Array
    train_mean: float
    train_std: float
    constant_std: float
    level: float = 0.9
    unlike: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        rows = len(np.asarray(self.y))
        if rows == 0:
            raise InputError("y: is empty; at least one held-out row would work.")
        for name in VECTORS:
            object.__setattr__(self, name, per_row(name, getattr(self, name), rows))
        if self.unlike is not None:
            object.__setattr__(self, "unlike", flags("unlike", self.unlike, rows))
        require_level(self.level)
        for name in ("train_std", "constant_std"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name}: {getattr(self, name)} was given; a positive number would work.")
        if (self.std < 0).any() or (self.lower > self.upper).any():
            raise InputError("std or lower: negative, or above upper, in some rows; proper intervals would work.")

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def of(
        cls,
        predictive: RegressionPredictive,
        y: Any,
        *,
        train_y: Any,
        constant_variance: float | torch.Tensor,
        level: float = 0.9,
        interval: tuple[Any, Any] | None = None,
        unlike: Any = None,
    ) -> Self:
        """From predictions on test rows.

        Args:
            predictive: One output per row.
            y: Test targets.
            train_y: Training targets.
            constant_variance: What `metrics.constant_variance` found on validation rows.
            level: Probability of the intervals.
            interval: Lower and upper ends, each (N,); None for the predictive's own.
            unlike: Rows unlike the training data, (N,) bool, if somebody looked.
        """
        target = regression_targets(predictive, y)
        if predictive.mean.numel() != len(predictive.mean):
            raise InputError(f"predictive: means of shape {tuple(predictive.mean.shape)}; one per row would work.")
        lower, upper = interval or map(flat, predictive.interval(level))
        seen = np.asarray(train_y, dtype=np.float64).reshape(-1)
        return cls(
            y=flat(target),
            mean=flat(predictive.mean),
            std=flat(finite_std(predictive)),
            epistemic_std=flat(predictive.epistemic.sqrt()),
            aleatoric_std=flat(predictive.aleatoric.sqrt()),
            lower=lower,
            upper=upper,
            pit=flat(pit(predictive, target)),
            log_density=flat(pll_points(predictive, target, floor=VARIANCE_FLOOR * (float(seen.var()) or 1.0))),
            train_mean=float(seen.mean()),
            train_std=float(seen.std()),
            constant_std=float(constant_variance) ** 0.5,
            level=level,
            unlike=None if unlike is None else np.asarray(unlike),
        )

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which targets lie within their intervals."""
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def doubt(self) -> Array:
        """What rows are ordered by: the predictive standard deviation."""
        return self.std

    def crps_points(self) -> Array:
        """CRPS of every row."""
        return _crps(self.y, self.mean, self.std)

    def constant_crps_points(self) -> Array:
        """CRPS of every row with the one error bar about the same means."""
        return _crps(self.y, self.mean, np.full_like(self.std, self.constant_std))

    def scores(self) -> dict[str, RegressionScores]:
        """Of the "model", of "one_error_bar" for all rows about its means, and of the "training_mean"."""
        constant = np.full_like(self.y, self.constant_std)
        guess = np.full_like(self.y, self.train_mean), np.full_like(self.y, self.train_std)
        crps, worse = float(self.crps_points().mean()), float(self.constant_crps_points().mean())
        best = float(optimal_crps(self.y - self.mean).mean())
        room = worse - best
        known = room > 1e-9 * worse
        rmse, r2 = _errors(self.y, self.mean)
        share = 100 * (worse - crps) / room if known else None
        return {
            "model": RegressionScores(rmse, r2, crps, share, float(self.log_density.mean()), float(self.inside.mean())),
            "one_error_bar": self._gaussian(self.mean, constant, 0.0 if known else None),
            "training_mean": self._gaussian(*guess, None),
        }

    def _gaussian(self, mean: Array, std: Array, normalised: float | None) -> RegressionScores:
        z = (self.y - mean) / std
        pll = float((-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).mean())
        reach = NormalDist().inv_cdf((1 + self.level) / 2)
        crps = float(_crps(self.y, mean, std).mean())
        return RegressionScores(*_errors(self.y, mean), crps, normalised, pll, float((np.abs(z) <= reach).mean()))


def _crps(y: Array, mean: Array, std: Array) -> Array:
    return flat(gaussian_crps(*(torch.from_numpy(np.ascontiguousarray(value)) for value in (y, mean, std))))


def _errors(y: Array, mean: Array) -> tuple[float, float]:
    square = float(((y - mean) ** 2).mean())
    spread = float(y.var())
    return square**0.5, 1 - square / spread if spread > 0 else float("nan")
