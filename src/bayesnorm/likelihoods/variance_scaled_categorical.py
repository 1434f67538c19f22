"""The likelihood of classes whose temperature rises with the samples' disagreement about a row.

A softmax is too sure of some rows more than of others, and how far logits move under the posterior helps to tell which:

    log T(x) = log(temperature) + slope z(x),
    z(x) = log(variance of the logits over samples, mean over classes), standardised, and kept from 0 to 2.

T(x) only rises: where samples agree as they do about most rows, or where there is but one, it is the temperature. Could
it fall as well, it would for images with noise, about whose logits samples agree more and a network knows less.

Gotchas:
- Mean and standard deviation belong to the effective batch size that they were found at; `calibrate` finds all four
  numbers. At a smaller one samples disagree more, and all temperatures are higher.
- It takes the samples of a prediction together, so that one draw alone is tempered otherwise than among others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ..arguments import require_number, require_positive
from ..predictive import ClassificationPredictive
from ..predictive.base import at_least_single
from .categorical import Categorical
from .scales import beside

# Standard deviations of uncertainty above its mean that still count.
MOST = 2.0


@dataclass(frozen=True)
class VarianceScaledCategorical(Categorical):
    """y ~ softmax(f / T(x)), where T(x) = temperature exp(slope z(x)) rises with the variance of the logits.

    Args:
        temperature: What logits are divided by where samples agree.
        slope: How much the logarithm of the temperature rises with one standard deviation of uncertainty; 0 for not at all.
        mean, std: Of the logarithm of the logits' variance over rows.
        ignore_index: A class number, such as -100, that stands for a missing target, which then counts for nothing.
    """

    slope: float = field(default=0.0, kw_only=True)
    mean: float = field(default=0.0, kw_only=True)
    std: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "slope", require_number("slope", self.slope, least=0, most=10))
        object.__setattr__(self, "mean", require_number("mean", self.mean))
        object.__setattr__(self, "std", require_positive("std", self.std))

    @property
    def plain(self) -> Categorical:
        """The same without listening to uncertainty."""
        return Categorical(self.temperature, ignore_index=self.ignore_index)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> ClassificationPredictive:
        plain = super().predictive(f, weights)  # which also refuses what is no output of classes
        if len(f) == 1 or not self.slope:
            return plain
        f = at_least_single(f if f.dim() > 2 else f.unsqueeze(-1))
        return self._tempered(f, weights, log_variance(f, plain.weights))

    @property
    def listens(self) -> bool:
        return self.slope > 0

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> ClassificationPredictive:
        if variance is None:
            return super().predictive(f, weights)
        if f.dim() == 2:
            f, variance = f.unsqueeze(-1), variance.unsqueeze(-1)
        return self._tempered(at_least_single(f), weights, variance.mean(1).log())

    def _tempered(self, f: Tensor, weights: Tensor | None, log_variance: Tensor) -> ClassificationPredictive:
        """Return the mixture whose temperature rises with the logarithm of the logits' variance, (batch, *pixels)."""
        z = standardised(log_variance, self.mean, self.std)
        temperature = beside(self.noise, f) * (self.slope * z).exp()
        return ClassificationPredictive(self.log_probs(f, temperature.unsqueeze(1)), weights, self.ignore_index)


def log_variance(f: Tensor, weights: Tensor) -> Tensor:
    """Return the logarithm of the variance over samples of logits (n, batch, class, *pixels), mean over classes.

    Args:
        f: The logits.
        weights: How much each draw counts, (n,); their sum is 1.
    """
    share = weights.to(f).view(-1, *[1] * (f.dim() - 1))
    mean = (share * f).sum(0)
    deviation = (f - mean).nan_to_num(0.0)  # of logits that are -inf in every draw
    return (share * deviation.square()).sum(0).mean(1).log()


def standardised(log_variance: Tensor, mean: float, std: float) -> Tensor:
    """Return z, 0 also where there is no variance."""
    return ((log_variance - mean) / std).clamp(0, MOST)
