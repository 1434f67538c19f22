"""Predictions of a number for held-out rows, with their scores, those of simple baselines, and checks of all arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..arguments import require_positive
from ..errors import InputError
from ..metrics import (
    VARIANCE_FLOOR,
    coverage,
    crps,
    crps_points,
    finite_std,
    gaussian_pll,
    normalised_crps,
    pit,
    pll_points,
    regression_targets,
    rmse,
)
from ..predictive import RegressionPredictive, require_level

Array = NDArray[np.float64]


class HeldOutArrays:
    """The base of the tests: it checks arrays with one value per held-out row."""

    y: NDArray[Any]
    unusual: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.y)

    def _hold(self, rows: int, *names: str, endless: bool = False) -> None:
        """Convert fields to (rows,) finite numbers, unless they are None. With `endless` they may be infinite."""
        for name in names:
            if getattr(self, name) is None:
                continue
            array = np.asarray(getattr(self, name), dtype=np.float64)
            bad = int((np.isnan(array) if endless else ~np.isfinite(array)).sum())
            if array.shape != (rows,) or bad:
                words = "NaN" if endless else "NaN or infinite values"
                raise InputError(
                    f"{name} must have shape ({rows},) and no {words}, got shape {array.shape} with {bad} of these."
                )
            object.__setattr__(self, name, array)

    def _hold_unusual(self, rows: int) -> None:
        """Convert the mask of unusual rows to (rows,) booleans, unless it is None."""
        if self.unusual is None:
            return
        mask = np.asarray(self.unusual)
        if mask.shape != (rows,) or mask.dtype != np.bool_:
            raise InputError(f"unusual must be bool of shape ({rows},), got {mask.dtype} of shape {mask.shape}.")
        object.__setattr__(self, "unusual", mask)


def flat(values: torch.Tensor) -> Array:
    """Return a tensor with one value per row, (N,) or (N, 1), as an array (N,)."""
    return np.asarray(values.detach().reshape(-1).double().cpu().numpy())


@dataclass(frozen=True)
class RegressionScores:
    """Scores over the test rows, in the target's units where they have any.

    Args:
        rmse: Root mean squared error; lower is better.
        r2: Share of the variance of the test targets that is explained; 1 is best, 0 is their mean.
        crps: Continuous ranked probability score of the Gaussian with the same moments; lower is better.
        normalised_crps: 100 is the ideal error bar for every row, 0 is one constant error bar. None if these two are
            equal, and for predictions with other means.
        pll: Predictive log likelihood, in nats; higher is better.
        coverage: Share of the targets inside their intervals.
    """

    rmse: float
    r2: float
    crps: float
    normalised_crps: float | None
    pll: float
    coverage: float


@dataclass(frozen=True)
class RegressionTest(HeldOutArrays):
    """Predictions for N held-out rows, and their targets. Every array is (N,), in the target's units.

    Args:
        y: The targets.
        mean, std: Means and standard deviations of the predictive distributions.
        epistemic_std, aleatoric_std: The two parts of `std`: disagreement of the samples, and noise.
        lower, upper: Ends of the central intervals; they may be infinite.
        pit: Predictive probability of a target at or below y. If other intervals are given, it belongs to these.
        log_density: Log of the predictive density at y.
        train_mean, train_std: Mean and standard deviation of the training targets, for the baseline.
        constant_std: The constant error bar around the same means, from validation rows.
        level: Probability of the intervals.
        unusual: Mask of the rows that are unusual compared with the training data; None if unknown.
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
    unusual: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        rows = len(np.asarray(self.y))
        if rows == 0:
            raise InputError("y is empty. Pass at least one held-out row.")
        self._hold(rows, "y", "mean", "std", "epistemic_std", "aleatoric_std", "pit", "log_density")
        self._hold(rows, "lower", "upper", endless=True)
        self._hold_unusual(rows)
        require_level(self.level)
        for name in ("train_std", "constant_std"):
            require_positive(name, getattr(self, name), error=InputError)
        if (self.std < 0).any() or (self.lower > self.upper).any():
            raise InputError(
                "std must not be negative and lower must not be above upper, but some rows break this rule."
            )

    @classmethod
    def from_predictive(
        cls,
        predictive: RegressionPredictive,
        y: Any,
        *,
        train_y: Any,
        constant_variance: float | torch.Tensor,
        level: float = 0.9,
        interval: tuple[Any, Any] | None = None,
        unusual: Any = None,
    ) -> Self:
        """Make a test from predictions for held-out rows.

        Args:
            predictive: Predictions with one output per row.
            y: Test targets.
            train_y: Training targets.
            constant_variance: Result of `metrics.constant_variance` on validation rows.
            level: Probability of the intervals.
            interval: Lower and upper ends, each (N,); None for those of the predictive.
            unusual: Mask of the rows that are unusual compared with the training data, (N,); None if unknown.
        """
        target = regression_targets(predictive, y)
        if predictive.mean.numel() != len(predictive.mean):
            raise InputError(
                f"predictive must have one output per row, got means of shape {tuple(predictive.mean.shape)}."
            )
        lower, upper = interval or map(flat, predictive.interval(level))
        train = np.asarray(train_y, dtype=np.float64).reshape(-1)
        return cls(
            y=flat(target),
            mean=flat(predictive.mean),
            std=flat(finite_std(predictive)),
            epistemic_std=flat(predictive.epistemic.sqrt()),
            aleatoric_std=flat(predictive.aleatoric.sqrt()),
            lower=lower,
            upper=upper,
            pit=flat(pit(predictive, target)),
            log_density=flat(pll_points(predictive, target, floor=VARIANCE_FLOOR * (float(train.var()) or 1.0))),
            train_mean=float(train.mean()),
            train_std=float(train.std()),
            constant_std=float(constant_variance) ** 0.5,
            level=level,
            unusual=unusual,
        )

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Mask of the targets that are inside their intervals."""
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def uncertainty(self) -> Array:
        """The uncertainty by which rows are ranked: the predictive standard deviation."""
        return self.std

    def crps_points(self) -> Array:
        """Return the CRPS of every row."""
        return flat(crps_points(_gaussians(self.mean, self.std), self.y))

    def crps_points_of(self, mean: Array, std: float) -> Array:
        """Return the CRPS of every row for other means (N,) with one error bar for all rows."""
        return flat(crps_points(_gaussians(mean, std), self.y))

    def constant_crps_points(self) -> Array:
        """Return the CRPS of every row with the constant error bar around the same means."""
        return flat(crps_points(_gaussians(self.mean, self.constant_std), self.y))

    def scores(self) -> dict[str, RegressionScores]:
        """Return scores of the "model", of "one_error_bar" around the same means, and of the "training_mean"."""
        model = _gaussians(self.mean, self.std)
        try:
            share = float(normalised_crps(model, self.y, self.constant_std**2))
        except InputError:  # a constant error bar is already ideal
            share = None
        guess = _gaussians(np.full_like(self.y, self.train_mean), self.train_std)
        observed = {"pll": float(self.log_density.mean()), "coverage": float(self.inside.mean())}
        return {
            "model": replace(self._scores(model, share), **observed),
            "one_error_bar": self._scores(_gaussians(self.mean, self.constant_std), None if share is None else 0.0),
            "training_mean": self._scores(guess, None),
        }

    def scores_of(self, mean: Array, std: float) -> RegressionScores:
        """Return the scores of other means (N,) with one error bar for all rows."""
        return self._scores(_gaussians(mean, std), None)

    def _scores(self, predictive: RegressionPredictive, share: float | None) -> RegressionScores:
        """Compute all scores of Gaussians. `share` is their normalised CRPS."""
        error, spread = float(rmse(predictive, self.y)), float(self.y.var())
        return RegressionScores(
            rmse=error,
            r2=1 - error**2 / spread if spread > 0 else float("nan"),
            crps=float(crps(predictive, self.y)),
            normalised_crps=share,
            pll=float(gaussian_pll(predictive, self.y, floor=VARIANCE_FLOOR * self.train_std**2)),
            coverage=float(coverage(predictive, self.y, self.level)),
        )


def _gaussians(mean: Array, std: Array | float) -> RegressionPredictive:
    """Return Gaussians with one output per row as a predictive."""
    loc, scale = (torch.from_numpy(part.copy())[None] for part in np.broadcast_arrays(mean, std))
    return RegressionPredictive(loc, scale)
