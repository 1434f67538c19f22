"""Split the error on new rows into epistemic uncertainty and noise.

Held-out scores depend only on the sum of both, so they cannot determine the shares. Two measurements can:

- **Fewer rows.** Networks of the same setting trained on half of the rows have a larger error on the same held-out
  rows. The part of the squared error that more rows could remove (the excess) is assumed to fall as n^-g. The excess
  at n rows is then the difference of the errors at n / 2 and n rows, divided by 2^g - 1. g is fixed at 3/4: a model
  with a fixed number of parameters has g = 1, and networks that learn finer detail from more rows have a smaller g.
  Estimating g from a third number of rows was too noisy to help.
- **Other rows.** Members trained on other rows disagree on rows that neither of them saw. This disagreement is part of
  the excess of one network; the mean over members has almost none of it.

The epistemic variance of the model must equal the rest of the excess. The disagreement of the members provides part of
it. The samples of batch statistics are scaled to provide the remainder, and the rest of the error is noise. All numbers
are mean squared errors in units of the targets' variance (for classes, of probabilities).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..schema import listed, number, record, whole

# The excess falls as the number of rows to the power of -EXPONENT.
EXPONENT = 0.75

# Squared errors are clipped at this multiple of their median, so that a few outliers do not dominate.
FAR = 100.0

# Bounds of the effective batch size, relative to the training batch size.
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
    """The parts of the uncertainty, estimated by cross-validation; see the module's docstring.

    Args:
        rows: Numbers of training rows, in ascending order.
        errors: Mean squared error of one network on held-out rows, for each number of rows.
        disagreement: Variance of members around their mean, on rows that none of them saw.
        excess: The part of the last error that more rows could remove.
        members: Number of networks in the model.
        asked: Number of members that predict each held-out row.
    """

    rows: tuple[int, ...]
    errors: tuple[float, ...]
    disagreement: float
    excess: float
    members: int
    asked: int

    @classmethod
    def estimate(
        cls, curve: dict[int, Tensor], disagreement: float, members: int, asked: int, *, bounded: bool = False
    ) -> Self:
        """Estimate the parts from squared errors of single networks on the same held-out rows.

        Args:
            curve: The squared errors, by number of training rows.
            disagreement, members, asked: See the class.
            bounded: Whether errors are bounded, as for probabilities, so that no clipping is needed.
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
        """The part of the error that no number of rows could remove."""
        return max(self.errors[-1] - self.excess, 0.0)

    @property
    def error(self) -> float:
        """Mean squared error of the model on new rows; averaging over members removes most of their disagreement."""
        return self.errors[-1] - self.between

    @property
    def model_excess(self) -> float:
        """The part of the model's error that more rows could remove."""
        return max(self.excess - self.between, 0.0)

    @property
    def share(self) -> float:
        """The fraction of the model's squared error that more rows could remove."""
        return self.model_excess / self.error if self.error > 0 else 0.0

    @property
    def between(self) -> float:
        """Variance between the members of the model on new rows."""
        return self.disagreement * (1 - 1 / self.members)

    @property
    def left_to_samples(self) -> float:
        """Variance that samples of batch statistics must add to the variance between members."""
        return max(self.model_excess - self.between, 0.0)

    @property
    def shrinkage(self) -> float:
        """The error of the model divided by the error of the one member that predicts a held-out row.

        The factor is for errors, not for squared errors. It is 1 if two members predict each held-out row: more
        members gain little then, and on small tables, which have two, the model's error equals that of their mean.
        """
        if self.asked > 1:
            return 1.0
        error, better = self.errors[-1], self.error
        return math.sqrt(better / error) if 0 < better < error else 1.0

    def batch_size(self, training: int, drawn: float) -> float:
        """Return the effective batch size at which the samples have the variance `left_to_samples`.

        Args:
            training: The training batch size.
            drawn: Variance of the samples at the training batch size.
        """
        factor = drawn / self.left_to_samples if self.left_to_samples > 0 else LARGEST
        return training * min(max(factor, SMALLEST), LARGEST)

    def config(self) -> dict[str, Any]:
        """Return the parts as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the parts from the JSON values of `config()`."""
        _CONFIG(config, "selection.uncertainty")
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in config.items()}
        return cls(**fields)


def _excess(rows: tuple[int, ...], errors: tuple[float, ...]) -> float:
    """Return the part of the last error that more rows could remove."""
    if len(errors) < 2 or errors[-2] <= errors[-1]:
        return 0.0
    return min((errors[-2] - errors[-1]) / ((rows[-1] / rows[-2]) ** EXPONENT - 1), errors[-1])
