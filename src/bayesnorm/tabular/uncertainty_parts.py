"""How much of the error on new rows is uncertainty about the network, and how much is noise.

Held-out scores see only the sum of both, so they must not decide their shares. What tells them apart:

- **Fewer rows.** Networks of the same setting that learn from half of the rows err by more, on the same held-out rows.
  What more rows could take away is that part of the squared error which fewer rows add to: with an excess that falls
  as n^-g, the excess at n is the fall from n / 2 to n over 2^g - 1. g is taken as 3/4, between the 1 of a model with a
  fixed number of parameters and the slower fall of networks that learn finer detail from more rows; learned from a
  third number of rows, it was so rough that it did more harm than good.
- **Other rows.** Members that learned from other rows disagree on rows that neither saw. That is part of one network's
  excess, of which the mean over members has next to nothing any more.

The model's uncertainty is to have the size of what is left of the excess then. Its members' disagreement is there already;
samples of batch statistics are scaled to what that lacks, and noise is the rest of the error. All numbers are mean
squared errors in units of the targets' variance (of probabilities, for classes).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..schema import listed, number, record, whole

# With which power of the number of rows the excess falls.
EXPONENT = 0.75

# Squared errors above so many times their median count as that: a few far rows must not decide.
FAR = 100.0

# Bounds of the effective batch size, in terms of that of training.
SMALLEST, LARGEST = 1 / 64, 4096.0

_CONFIG = record(
    rows=listed(whole(1), 1),
    errors=listed(number(0), 1),
    disagreement=number(0),
    excess=number(0),
    members=whole(1),
    asked=whole(1),
)


@dataclass(frozen=True)
class UncertaintyParts:
    """What a cross-validation found of the parts of uncertainty; see the module's text.

    Args:
        rows: Numbers of rows that networks learned from, the fewest first.
        errors: Mean squared error of one network on held-out rows, for each of these.
        disagreement: Variance of members about their mean, on rows that none of them saw.
        excess: What more rows could take away from the last of the errors.
        members: Number of networks that the model consists of.
        asked: How many of them said what they think of each held-out row.
    """

    rows: tuple[int, ...]
    errors: tuple[float, ...]
    disagreement: float
    excess: float
    members: int
    asked: int

    @classmethod
    def of(
        cls, curve: dict[int, Tensor], disagreement: float, members: int, asked: int, *, bounded: bool = False
    ) -> Self:
        """Make them of squared errors of single networks on the same rows, by the number of rows learned from.

        Args:
            curve: The errors.
            disagreement, members, asked: The same as in the constructor.
            bounded: Whether errors cannot be large, as those of probabilities cannot.
        """
        rows = tuple(sorted(curve))
        bound = torch.tensor(torch.inf, dtype=torch.float64)
        if not bounded:
            bound = FAR * curve[rows[-1]].double().median().clamp_min(torch.finfo(torch.float64).tiny)
        errors = tuple(float(torch.minimum(curve[n].double(), bound).mean()) for n in rows)
        disagreement = min(disagreement, errors[-1])
        return cls(rows, errors, disagreement, max(_excess(rows, errors), disagreement), members, asked)

    @property
    def noise(self) -> float:
        """What no number of rows could take away from the error."""
        return max(self.errors[-1] - self.excess, 0.0)

    @property
    def error(self) -> float:
        """Mean squared error of the model on new rows: over its members, most of their disagreement averages out."""
        return self.errors[-1] - self.between

    @property
    def model_excess(self) -> float:
        """What more rows could take away from the model's error."""
        return max(self.excess - self.between, 0.0)

    @property
    def share(self) -> float:
        """The share of the model's squared error that more rows could take away."""
        return self.model_excess / self.error if self.error > 0 else 0.0

    @property
    def between(self) -> float:
        """Variance between the model's members on new rows."""
        return self.disagreement * (1 - 1 / self.members)

    @property
    def left_to_samples(self) -> float:
        """Variance that samples of batch statistics have to add to that between members."""
        return max(self.model_excess - self.between, 0.0)

    @property
    def shrinkage(self) -> float:
        """How much smaller the model's error is than that of the one member which was asked about a held-out row.

        A factor of errors, not of their squares: a mean over members has less of their disagreement in it. Where two
        members were asked it is 1: little is left to gain, and on small tables, which have two, the model's error was
        found to be that of their mean.
        """
        if self.asked > 1:
            return 1.0
        error, better = self.errors[-1], self.error
        return math.sqrt(better / error) if 0 < better < error else 1.0

    def batch_size(self, training: int, drawn: float) -> float:
        """Return the effective batch size at which samples have the variance that is left to them.

        Args:
            training: The batch size M of training.
            drawn: Variance of samples at M.
        """
        factor = drawn / self.left_to_samples if self.left_to_samples > 0 else LARGEST
        return training * min(max(factor, SMALLEST), LARGEST)

    def config(self) -> dict[str, Any]:
        """Return the parts as plain JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the parts that `config()` described."""
        _CONFIG(config, "selection.uncertainty")
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in config.items()}
        return cls(**fields)


def _excess(rows: tuple[int, ...], errors: tuple[float, ...]) -> float:
    """Return what more rows could take away from the last of some errors."""
    if len(errors) < 2 or errors[-2] <= errors[-1]:
        return 0.0
    return min((errors[-2] - errors[-1]) / ((rows[-1] / rows[-2]) ** EXPONENT - 1), errors[-1])
