"""What methods with group priors share: which weights get them, and the arguments that do not go with them."""

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
    """A posterior under which whole units and filters can turn out to be noise; arguments as in `VariationalMethod`."""

    initial_std: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, tuple | list):
            raise BayesNormError(
                f"prior: {self.prior!r} was given, and a group's weights have a Gaussian given its scale; its standard "
                "deviation would work."
            )
        if self.prior_center != "zero":
            raise BayesNormError('prior_center: "trained" was given, and groups are drawn to zero; "zero" would work.')

    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> WeightDistribution:
        if tensor.is_bias:
            return GaussianWeights(tensor.parameter, std, tensor.axis, center)
        size = float(tensor.parameter.detach().double().square().mean().sqrt())
        return self.groups(tensor, std, size or 1.0)

    @abstractmethod
    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> GroupWeights:
        """The initial distribution of a weight tensor, whose entries are about as large as `unit`."""
