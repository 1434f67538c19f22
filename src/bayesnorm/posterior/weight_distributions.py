"""Distributions of weight tensors, their prior, and the KL divergence between them.

The prior is the same for every weight w, around a centre c (zero, or the trained weight):

    p(w) = N(w; c, s^2),   or the scale mixture   p(w) = pi N(w; c, s1^2) + (1 - pi) N(w; c, s2^2).

For a Gaussian q and a Gaussian p the divergence has a closed form per weight:
ln(s / sigma) + (sigma^2 + (mu - c)^2) / (2 s^2) - 1/2. For the mixture, E_q[ln q] has a closed form, and E_q[ln p] is
estimated from samples.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..arguments import as_number
from ..errors import BayesNormError
from ..network import RandomWeights
from ..schema import Array, Check, one_of, record, text, whole

_KINDS: dict[str, type[WeightDistribution]] = {}


@dataclass(frozen=True)
class WeightPrior:
    """The prior of every weight around its centre: N(0, std^2), or a mixture of two Gaussians if `share` is below 1.

    Args:
        std: Standard deviation of the Gaussian, or of the mixture's first component.
        share: Weight pi of the first component. Default: 1.
        other_std: Standard deviation of the mixture's second component. Default: 1.
    """

    std: float
    share: float = 1.0
    other_std: float = 1.0

    @classmethod
    def parse(cls, prior: Any) -> WeightPrior:
        """Return the prior for the argument `prior`: a standard deviation, or (pi, std1, std2)."""
        values = (1.0, prior, 1.0) if not isinstance(prior, tuple | list) else prior
        numbers = [number for number in map(as_number, values) if number is not None and 0 < number < math.inf]
        if not len(values) == len(numbers) == 3 or numbers[0] > 1:
            raise BayesNormError(
                "prior must be a positive number (a standard deviation), or a scale mixture (pi, std1, std2) with pi "
                f"up to 1, got {prior!r}."
            )
        share, std, other_std = numbers
        return cls(std, share, other_std)

    @property
    def gaussian(self) -> bool:
        return self.share == 1

    def log_prob(self, deviation: Tensor) -> Tensor:
        """Return ln p for each deviation from the centre."""
        if self.gaussian:
            return _log_normal(deviation, self.std)
        return torch.logaddexp(
            math.log(self.share) + _log_normal(deviation, self.std),
            math.log1p(-self.share) + _log_normal(deviation, self.other_std),
        )

    def kl(self, deviation: Tensor, std: Tensor, samples: int = 1) -> Tensor:
        """Return the sum of KL(N(deviation, std^2) || p); for a mixture, an unbiased estimate from samples."""
        if self.gaussian:
            quadratic = (std.square() + deviation.square()).sum() / (2 * self.std**2)
            return quadratic - std.log().sum() + std.numel() * (math.log(self.std) - 0.5)
        sampled = deviation + std * torch.randn(samples, *std.shape, dtype=std.dtype, device=std.device)
        negative_entropy = -std.log().sum() - std.numel() * 0.5 * math.log(2 * math.pi * math.e)
        return negative_entropy - self.log_prob(sampled).sum() / samples


class WeightDistribution(RandomWeights):
    """A distribution of one weight tensor, with its KL divergence from a prior, which can be written to a file.

    Args:
        mean: M, the network's parameter.
        std: Initial standard deviations, in its shape.
        axis: The axis of the tensor that a multiplier belongs to.
        center: Centre of the prior, in the tensor's shape; None for zero.
    """

    kind: ClassVar[str]
    schema: ClassVar[Check]
    """The schema of `config()`."""

    center: Tensor | None

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):  # classes without a kind are bases
            _KINDS[cls.kind] = cls

    def __init__(self, mean: nn.Parameter, std: Tensor, axis: int = 0, center: Tensor | None = None) -> None:
        super().__init__(mean, std, axis)
        self.register_buffer("center", center)

    @abstractmethod
    def kl(self, prior: WeightPrior, samples: int | None = None) -> Tensor:
        """Return the KL divergence from the prior, with derivatives; without a closed form, from `samples` samples.

        None uses the samples of the latest forward pass, or one new sample.
        """

    def config(self) -> dict[str, Any]:
        """Return JSON values to create an empty distribution, whose tensors are then loaded."""
        return {"kind": self.kind, "axis": self.axis}

    @classmethod
    def arrays(cls, shape: tuple[int, ...], config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        """Describe the tensors of `state_dict()` for weights of this shape, given a config that fits `schema`."""
        return {name: Array(shape) for name in ("mean", "rho", *(["center"] if "center" in tensors else []))}


class GaussianWeights(WeightDistribution):
    """w = mu + softplus(rho) eps, with all entries independent."""

    kind = "gaussian"
    schema = record(kind=text, axis=whole())

    def kl(self, prior: WeightPrior, samples: int | None = None) -> Tensor:
        deviation = self.mean if self.center is None else self.mean - self.center
        return prior.kl(deviation, self.std, samples or 1)


def weight_arrays(config: Any, weight: Tensor, tensors: dict[str, Tensor]) -> dict[str, Array]:
    """Describe the tensors of a distribution of any kind over a weight, given its `config()`, which is checked."""
    kind = config.get("kind") if isinstance(config, dict) else None
    one_of(*sorted(_KINDS))(kind, "posterior.weights' kind")
    named = _KINDS[str(kind)]
    named.schema(config, "posterior.weights")
    whole(0, weight.dim() - 1)(config["axis"], "posterior.weights' axis")
    return named.arrays(tuple(weight.shape), config, tensors)


def weights_from(config: dict[str, Any], tensors: dict[str, Tensor]) -> WeightDistribution:
    """Return the distribution that `config()` and `state_dict()` described. It may use the global random generator."""
    options = dict(config)
    mean = tensors["mean"]
    kind, center = _KINDS[options.pop("kind")], tensors.get("center")
    made = kind(nn.Parameter(mean.clone()), torch.ones_like(mean), center=center, **options)
    made.load_state_dict(tensors)
    return made.requires_grad_(False)


def _log_normal(deviation: Tensor, std: float) -> Tensor:
    return -0.5 * (deviation / std).square() - math.log(std) - 0.5 * math.log(2 * math.pi)
