"""What every likelihood offers: outputs of n draws in, a predictive out."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from ..errors import FileFormatError
from ..predictive import Predictive

_KINDS: dict[str, type[Likelihood]] = {}


class Likelihood(ABC):
    """Turns network outputs `f` into p(y | f). A frozen dataclass whose fields are plain numbers."""

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    @abstractmethod
    def predictive(self, f: Tensor, weights: Tensor | None = None) -> Predictive:
        """The mixture over draws.

        Args:
            f: Network outputs, (n, batch, *out).
            weights: How much each draw counts, (n,); None for all the same.
        """

    @abstractmethod
    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        """Mean over the rows of -log p(y | f), a row's outputs and pixels summed: what a network is trained on.

        In this scale, a penalty -log prior or a KL divergence is divided by the number of training rows.

        Args:
            f: Network outputs, (batch, *out).
            y: Targets.
        """

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> Predictive | None:
        """The predictive where the output is N(mean, variance), if it has a closed form."""
        return None

    @abstractmethod
    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Between which positive numbers to look for the noise, given outputs (n, batch, *out) and their targets.

        0-dim for one number, (D,) for one per entry of the last output axis.
        """

    @abstractmethod
    def with_noise(self, noise: Tensor) -> Likelihood:
        """The same likelihood with other noise: a variance, scale or temperature, of the shape of `noise_range`'s."""

    def config(self) -> dict[str, Any]:
        """The likelihood as plain JSON values; `likelihood_from` reads it back."""
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}  # type: ignore[call-overload]


def likelihood_from(config: dict[str, Any]) -> Likelihood:
    """The likelihood that `config()` described."""
    fields = dict(config)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise FileFormatError(f"likelihood: {kind!r} is unknown; this version knows {', '.join(sorted(_KINDS))}.")
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise FileFormatError(f"likelihood: {kind} does not take {fields} ({error}).") from error
