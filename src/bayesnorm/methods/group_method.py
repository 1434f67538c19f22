"""The base class of methods with group priors: which weights have them, and arguments that they do not support."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from ..errors import BayesNormError
from ..network import WeightTensor
from ..posterior import GaussianWeights, GroupWeights, WeightDistribution
from .variational import VariationalMethod


@dataclass(frozen=True)
class GroupMethod(VariationalMethod):
    """A posterior under which whole units and filters can become noise; arguments as in `VariationalMethod`."""

    initial_std: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, tuple | list):
            raise BayesNormError(
                f"prior must be one standard deviation, got {self.prior!r}. Given the scale of a group, its weights "
                "have a Gaussian prior."
            )
        if self.prior_center != "zero":
            raise BayesNormError('prior_center must be "zero" for group priors, got "trained".')

    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> WeightDistribution:
        if tensor.is_bias:
            return GaussianWeights(tensor.parameter, std, tensor.axis, center)
        size = float(tensor.parameter.detach().double().square().mean().sqrt())
        return self.groups(tensor, std, size or 1.0)

    @abstractmethod
    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> GroupWeights:
        """Return the initial distribution of a weight tensor whose entries have magnitude `unit`."""
