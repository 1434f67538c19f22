"""The likelihood with Student's t noise of fixed scale, for robust regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..arguments import require_number
from ..predictive import LEAST_DF, StudentTNoise
from .real_targets import FixedNoiseByScale
from .scales import per_output


@dataclass(frozen=True)
class StudentT(FixedNoiseByScale):
    """Robust regression: (y - f) / scale ~ Student's t with `df` degrees of freedom.

    The variance is scale^2 df / (df - 2). Beyond a few scales, an outlier has less influence the farther away it is.

    Args:
        df: Degrees of freedom, at least 1.1. Up to 2, the variance is infinite. Above 30, the noise is nearly Gaussian.
            Default: 4.
        scale: Scale of the noise in the targets' units: one positive number, or one per entry of an output axis.
            Default: 1.
        axis: The axis of outputs (batch, *out) that several scales belong to: -1 for the last, 1 for the channels of
            maps. Default: -1.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    df: float = 4.0
    scale: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "df", required_df(self.df))

    @property
    def family(self) -> StudentTNoise:
        return StudentTNoise(self.df)

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of scales that starts far below the mean absolute error, most of which may be outliers."""
        error = per_output(self.errors(f.mean(0), y).abs(), self.axis, self.noise)
        return error * 0.02, error * 10


def required_df(df: Any) -> float:
    """Return degrees of freedom as a plain number, or raise an error."""
    requirement = f"a finite number from {LEAST_DF} (the mean exists only above 1)"
    return require_number("df", df, least=LEAST_DF, requirement=requirement)
