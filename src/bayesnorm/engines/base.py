"""The interface of engines, what they need from a posterior, and checks that predictions are finite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..errors import BayesNormError, NotFiniteError
from ..likelihoods import Likelihood
from ..network import Executable, State, numbered
from ..predictive import MultiTaskPredictive, Predictive, at_least_single, largest_number, summarised


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


class Samplable(Protocol):
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

    @property
    def output_directions(self) -> Any: ...

    def directions(self, rank: int) -> Tensor: ...

    def state(self, coordinates: Tensor) -> State: ...


class Engine(ABC):
    """Compute predictions from a posterior. Subclasses differ in how they propagate it through the network."""

    @abstractmethod
    def predict(self, posterior: Samplable, x: Any, seed: int = 0) -> Predictive:
        """Return the predicted distribution of the targets at `x`."""

    def summary(self, posterior: Samplable, x: Any, seed: int = 0) -> Predictive:
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


def require_finite(
    posterior: Samplable, x: Any, f: Tensor, predictive: Predictive, passed: Callable[[Tensor | bool], bool] = bool
) -> None:
    """Raise an error if means or variances of outputs are not finite. The error names the examples and the cause.

    It reads the outputs once, and waits for a GPU once.

    Args:
        posterior: The posterior that was sampled.
        x: The inputs.
        f: Outputs, (n, batch, *out).
        predictive: The predictive for these outputs.
        passed: Reads a check, together with those of the inputs, see `delayed_checks`.
    """
    if not passed(_moderate(f)):
        finite_summary(posterior, x, predictive, dtype=f.dtype)


def finite_summary(
    posterior: Samplable,
    x: Any,
    predictive: Predictive,
    passed: Callable[[Tensor | bool], bool] = bool,
    dtype: torch.dtype | None = None,
) -> Predictive:
    """Return the summary, or raise an error that names the examples whose means or variances are not finite.

    Args:
        posterior, x, predictive, passed: See `require_finite`.
        dtype: The dtype of the outputs for the error; None stands for the network's.
    """
    parts = list(predictive.values()) if isinstance(predictive, MultiTaskPredictive) else [predictive]
    # Logits may be -inf, for classes that are impossible.
    good = torch.stack([_finite_rows(values) for part in parts for values in (part.mean, part.epistemic)]).all(0)
    if not passed(good.all()):
        dtype = posterior.executable.dtype if dtype is None else dtype
        raise NotFiniteError(_explained(posterior, x, (~good).nonzero().flatten().tolist(), len(good), dtype))
    return predictive


def _moderate(f: Tensor) -> Tensor | bool:
    """Return whether outputs and their variance are finite; on a GPU without waiting for it."""
    if not f.numel():
        return True
    low, high = torch.aminmax(f)
    most = largest_number(torch.promote_types(f.dtype, torch.float32))
    return (low >= -most) & (high <= most) if f.is_cuda else -most <= float(low) and float(high) <= most


def _finite_rows(values: Tensor) -> Tensor:
    return torch.isfinite(values).reshape(len(values), values.shape[1:].numel()).all(1)


def _explained(posterior: Any, x: Any, rows: list[int], count: int, dtype: torch.dtype) -> str:
    """Return the message about examples whose predictions are not finite."""
    executable, size = posterior.executable, getattr(posterior, "batch_size", None)
    where = "all rows" if len(rows) == count else numbered("row", rows)
    some = executable.input(x)[rows]
    if size is not None and bool(_moderate(at_least_single(executable.point(some)))):
        larger = getattr(posterior, "fitted_batch_size", 32)
        return (
            f"Outputs of {where} are not finite at effective batch size {size:g}, because the sampled statistics vary "
            f"too much. Use a larger one: posterior.at_batch_size({larger})."
        )
    return (
        f"x gives outputs that are not finite, or too large for {dtype}, for {where}, where its largest value is "
        f"{float(some.abs().max()):g}. Pass inputs like those in training."
    )
