"""The effective batch size, which posteriors over batch statistics have and others do not."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from ..errors import BayesNormError


@runtime_checkable
class Resizable(Protocol):
    """What has an effective batch size, or is made of parts that may have one."""

    @property
    def batch_size(self) -> float | None:
        """M', or None where no part has one, or parts differ."""

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the same with another effective batch size."""


def effective_batch_size(posterior: Any) -> float | None:
    """Return a posterior's effective batch size, or None where it has none."""
    return posterior.batch_size if isinstance(posterior, Resizable) else None


def resized(posterior: Any, batch_size: float) -> Any:
    """Return the posterior at another effective batch size, or say that it has none."""
    if not isinstance(posterior, Resizable):
        raise BayesNormError(
            f"batch_size: {type(posterior).__name__} has no effective batch size; those over batch statistics do."
        )
    return posterior.at_batch_size(batch_size)
