"""The likelihood of Student's t noise of known scale: targets that are far off say little about the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..arguments import require_number
from ..predictive.student_t import LEAST_DF, StudentTNoise
from .real_targets import FixedNoiseByScale
from .scales import per_output


@dataclass(frozen=True)
class StudentT(FixedNoiseByScale):
    """(y - f) / scale ~ Student's t with `df` degrees of freedom; its variance is scale^2 df / (df - 2).

    A robust regression: beyond some scales, an outlier pulls the less the farther away it is.

    Args:
        df: Degrees of freedom, from 1.1. The variance is infinite up to 2; above 30 it is all but a Gaussian.
        scale: Scale of the noise in the targets' own units: one positive number, or one per entry of an output axis.
        axis: The axis of outputs (batch, *out) that several scales lie along: the last, or 1 for the channels of maps.
        missing: Whether NaN stands for a missing target, which then counts for nothing.
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
        """Return a range of scales from far below the mean absolute error, which outliers may make up most of."""
        error = per_output(self.errors(f.mean(0), y).abs(), self.axis, self.noise)
        return error * 0.02, error * 10


def required_df(df: Any) -> float:
    """Return degrees of freedom as a plain number, or refuse them."""
    requirement = f"a finite number from {LEAST_DF} (the mean exists only above 1)"
    return require_number("df", df, least=LEAST_DF, requirement=requirement)
