"""The likelihood of classes whose temperature increases with the samples' disagreement about an example.

A softmax is more overconfident on some examples than on others. The variance of the logits under the posterior helps
to find them:

    log T(x) = log(temperature) + slope z(x),
    z(x) = log(variance of the logits over samples, mean over classes), standardised, and clipped to 0 ... 2.

z(x) is 0 if the samples agree as much as on most examples, or if there is only one sample. T(x) is never below
`temperature`. Otherwise it would fall for noisy images, whose logits vary less although the network is less accurate.

Note:
- `mean` and `std` belong to the effective batch size M' that they were fitted at; `calibrate` fits all four numbers. At
  a smaller M', samples disagree more, and all temperatures are higher.
- The temperature depends on all samples of a prediction, so one sample alone gets another temperature.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ..arguments import require_number, require_positive
from ..predictive import ClassificationPredictive, at_least_single
from .classes import Categorical
from .scales import beside

# Maximum of z, in standard deviations above the mean.
LARGEST_DISAGREEMENT = 2.0


@dataclass(frozen=True)
class VarianceScaledCategorical(Categorical):
    """Classification with an input-dependent temperature: y ~ softmax(f / T(x)), T(x) = temperature exp(slope z(x)).

    z(x) is the standardised log-variance of the logits over samples, so T(x) is higher where samples disagree.
    `calibrate` chooses this likelihood if it scores significantly better than a constant temperature.

    Args:
        temperature: Divisor of the logits where samples agree. Default: 1.
        slope: Increase of the log temperature per standard deviation of the log-variance. Default: 0, a constant
            temperature.
        mean, std: Mean and standard deviation of the logits' log-variance over examples. Default: 0 and 1.
        ignore_index: The class number, such as -100, that marks a missing target. Missing targets do not count.
            Default: None, no target is missing.
    """

    slope: float = field(default=0.0, kw_only=True)
    mean: float = field(default=0.0, kw_only=True)
    std: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "slope", require_number("slope", self.slope, least=0, most=10, requirement="a number from 0 to 10")
        )
        object.__setattr__(self, "mean", require_number("mean", self.mean))
        object.__setattr__(self, "std", require_positive("std", self.std))

    @property
    def plain(self) -> Categorical:
        """The likelihood with the same temperature for all examples."""
        return Categorical(self.temperature, ignore_index=self.ignore_index)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> ClassificationPredictive:
        plain = super().predictive(f, weights)  # also checks the shape of the outputs
        if len(f) == 1 or not self.slope:
            return plain
        f = at_least_single(f if f.dim() > 2 else f.unsqueeze(-1))
        return self._tempered(f, weights, log_logit_variance(f, plain.weights))

    @property
    def uses_sample_variance(self) -> bool:
        return self.slope > 0

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> ClassificationPredictive:
        if variance is None:
            return super().predictive(f, weights)
        if f.dim() == 2:
            f, variance = f.unsqueeze(-1), variance.unsqueeze(-1)
        return self._tempered(at_least_single(f), weights, variance.mean(1).log())

    def _tempered(self, f: Tensor, weights: Tensor | None, log_variance: Tensor) -> ClassificationPredictive:
        """Return the mixture whose temperature increases with the log-variance of the logits, (batch, *pixels)."""
        z = standardised_disagreement(log_variance, self.mean, self.std)
        temperature = beside(self.noise, f) * (self.slope * z).exp()
        return ClassificationPredictive(self.log_probs(f, temperature.unsqueeze(1)), weights, self.ignore_index)


def log_logit_variance(f: Tensor, weights: Tensor) -> Tensor:
    """Return the logarithm of the variance over samples of logits (n, batch, class, *pixels), averaged over classes.

    Args:
        f: The logits.
        weights: Weights of the samples, (n,), which sum to 1.
    """
    share = weights.to(f).view(-1, *[1] * (f.dim() - 1))
    mean = (share * f).sum(0)
    deviation = (f - mean).nan_to_num(0.0)  # NaN comes from logits that are -inf in every sample
    return (share * deviation.square()).sum(0).mean(1).log()


def standardised_disagreement(log_variance: Tensor, mean: float, std: float) -> Tensor:
    """Return z, which is also 0 if there is no variance."""
    return ((log_variance - mean) / std).clamp(0, LARGEST_DISAGREEMENT)
