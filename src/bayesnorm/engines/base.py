"""The interface of engines, and what they need from a posterior."""

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
    """Forward passes of one network, and the posterior samples that they belong to.

    Args:
        executable: Runs the network.
        states: The overrides of each forward pass, with a leading axis of passes; None for one unchanged pass.
        places: Indices of the samples that these passes give; None for all n.
        sources: Index of the pass that each of those samples takes its outputs from; None for one pass per sample.
    """

    executable: Executable
    states: State | None
    places: Tensor | None = None
    sources: Tensor | None = None


class Drawable(Protocol):
    """A distribution over part of a network's state, as engines use it."""

    @property
    def executable(self) -> Executable: ...

    @property
    def likelihood(self) -> Likelihood: ...

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        """Return the forward passes for n samples."""


class Fluctuating(Protocol):
    """Deviations of coordinates from a location, as engines use them."""

    def root(self) -> tuple[Tensor, Tensor | None]:
        """Return a factor F (R, P) and standard deviations d (P,) or None, with covariance F^T F + diag(d^2)."""

    def principal(self, rank: int) -> tuple[Tensor, Tensor]:
        """Return leading principal components (R, P), one standard deviation long, and cumulative variance shares."""


@runtime_checkable
class CoordinatePosterior(Protocol):
    """A posterior whose samples are a location plus fluctuations of known covariance; see `BatchNormPosterior`."""

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
    """Compute predictions from a posterior. Subclasses differ in how they propagate it through the network."""

    @abstractmethod
    def predict(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Return the predicted distribution of the targets at `x`."""

    def summary(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Return a summary of that distribution, which keeps no samples."""
        return summarised(self.predict(posterior, x, seed))


def require_one_shape(first: Sequence[int], other: Sequence[int]) -> None:
    """Raise an error if the outputs of ensemble members differ in shape."""
    if first != other:
        raise BayesNormError(
            f"The members return outputs of different shapes, {tuple(first)} and {tuple(other)}. All shapes must agree."
        )


def in_coordinates(posterior: Any, engine: str) -> CoordinatePosterior:
    """Return the posterior if it is over batch-norm statistics; otherwise raise an error."""
    if not isinstance(posterior, CoordinatePosterior):
        raise BayesNormError(
            f"{engine} needs a posterior over batch-norm statistics, got {type(posterior).__name__}. Use "
            "engine=MonteCarlo(), which supports every posterior."
        )
    return posterior
