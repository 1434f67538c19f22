"""What every engine offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from ..errors import BayesNormError
from ..fluctuations import Fluctuations
from ..network import Executable, State
from ..predictive import Predictive

if TYPE_CHECKING:
    from ..posterior import Posterior


class Engine(ABC):
    """Pushes a posterior through its network."""

    @abstractmethod
    def predict(self, posterior: Posterior, x: Any, seed: int = 0) -> Predictive:
        """The predictive distribution of the targets at `x`."""


@runtime_checkable
class CoordinatePosterior(Protocol):
    """A posterior whose draws are a centre plus fluctuations with a known covariance; see `BatchNormPosterior`."""

    @property
    def executable(self) -> Executable: ...

    @property
    def centre(self) -> Tensor: ...

    @property
    def spread(self) -> float: ...

    @property
    def fluctuations(self) -> Fluctuations: ...

    def directions(self, rank: int) -> Tensor: ...

    def state(self, coordinates: Tensor) -> State: ...


def in_coordinates(posterior: Any, engine: str) -> CoordinatePosterior:
    """The posterior, where it is one over batch-norm statistics."""
    if not isinstance(posterior, CoordinatePosterior):
        raise BayesNormError(
            f"engine: {engine} needs a posterior over batch-norm statistics, and {type(posterior).__name__} was given; "
            "MonteCarlo() works with every posterior."
        )
    return posterior
