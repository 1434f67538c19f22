"""The effective batch size, which only posteriors over batch statistics have."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from ..errors import BayesNormError


@runtime_checkable
class Resizable(Protocol):
    """An object with an effective batch size, or with parts that may have one."""

    @property
    def batch_size(self) -> float | None:
        """The effective batch size M', or None if no part has one, or if parts differ."""

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the same with another effective batch size."""


def effective_batch_size(posterior: Any) -> float | None:
    """Return a posterior's effective batch size, or None if it has none."""
    return posterior.batch_size if isinstance(posterior, Resizable) else None


def resized(posterior: Any, batch_size: float) -> Any:
    """Return the posterior at another effective batch size, or raise an error if it has none."""
    if not isinstance(posterior, Resizable):
        raise BayesNormError(
            f"{type(posterior).__name__} has no effective batch size; only posteriors over batch-norm statistics do. "
            "Fit MCBN, GaussianBN or StochasticBN, or leave the batch size out."
        )
    return posterior.at_batch_size(batch_size)
