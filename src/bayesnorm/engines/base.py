"""What every engine offers, and what it needs of a posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..network import Executable, State
from ..predictive import Predictive, summarised


@dataclass(frozen=True, eq=False)
class Passes:
    """Passes of one network, and which of a posterior's n samples they give.

    Args:
        executable: Runs the network.
        states: What each pass overrides, with a leading axis of passes; None for one pass of the network as it is.
        places: Which samples these passes give, by number; None for all n.
        sources: The pass that each of those samples takes its outputs from; None where every pass gives one draw.
    """

    executable: Executable
    states: State | None
    places: Tensor | None = None
    sources: Tensor | None = None


@runtime_checkable
class TakesMoments(Protocol):
    """What runs a network, and can take the moments of its outputs without holding those of all samples."""

    def moments(self, states: State, x: Any) -> tuple[Tensor, Tensor]:
        """Mean and variance of the outputs over states."""


class Drawable(Protocol):
    """A distribution over part of a network's state, seen by an engine."""

    @property
    def executable(self) -> Executable: ...

    @property
    def likelihood(self) -> Likelihood: ...

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        """The passes that n samples take."""


class Fluctuating(Protocol):
    """Deviations of coordinates from a location, seen by an engine."""

    def root(self) -> tuple[Tensor, Tensor | None]:
        """A factor F (R, P) and standard deviations d (P,) or None, with covariance F^T F + diag(d^2)."""

    def principal(self, rank: int) -> tuple[Tensor, Tensor]:
        """Leading principal components (R, P), one standard deviation long, and the share that the first r explain."""


@runtime_checkable
class CoordinatePosterior(Protocol):
    """A posterior whose samples are a location plus fluctuations with a known covariance; see `BatchNormPosterior`."""

    @property
    def executable(self) -> Executable: ...

    @property
    def location(self) -> Tensor: ...

    @property
    def spread(self) -> float: ...

    @property
    def fluctuations(self) -> Fluctuating: ...

    def directions(self, rank: int) -> Tensor: ...

    def state(self, coordinates: Tensor) -> State: ...


class Engine(ABC):
    """Pushes a posterior through its network."""

    @abstractmethod
    def predict(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Predict the distribution of the targets at `x`."""

    def summary(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Predict a summary of that distribution: the same without its samples."""
        return summarised(self.predict(posterior, x, seed))


def require_one_shape(first: Sequence[int], found: Sequence[int]) -> None:
    """Refuse members of an ensemble whose outputs differ in shape."""
    if first != found:
        raise BayesNormError(f"members: give outputs of shape {tuple(first)} and {tuple(found)}; one shape would work.")


def in_coordinates(posterior: Any, engine: str) -> CoordinatePosterior:
    """Return the posterior where it is one over batch-norm statistics of one network, and refuse others."""
    if not isinstance(posterior, CoordinatePosterior):
        raise BayesNormError(
            f"engine: {engine} needs a posterior over batch-norm statistics, and {type(posterior).__name__} was given; "
            "MonteCarlo() works with every posterior."
        )
    if posterior.location.dim() > 1:
        raise BayesNormError(
            f"engine: {engine} needs one network, and {type(posterior).__name__} is over a stack of "
            f"{len(posterior.location)}; MonteCarlo() would work, and so would a method fitted on stack.network(i)."
        )
    return posterior
