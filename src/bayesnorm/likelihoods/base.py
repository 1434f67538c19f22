"""What every likelihood offers: outputs of n draws in, a predictive out."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from torch import Tensor

from ..errors import BayesNormError, FileFormatError
from ..predictive import Predictive

_KINDS: dict[str, type[Likelihood]] = {}


class Likelihood(ABC):
    """Turns network outputs `f` into p(y | f). A frozen dataclass whose fields are plain numbers."""

    least_outputs: ClassVar[int] = 1
    """Outputs of a row with one target, or of two classes."""

    def __init_subclass__(cls) -> None:
        if ABC not in cls.__bases__:  # those say that they are no likelihood yet
            _KINDS[cls.__name__] = cls

    @abstractmethod
    def predictive(self, f: Tensor, weights: Tensor | None = None) -> Predictive:
        """The mixture over draws.

        Args:
            f: Network outputs, (n, batch, *out).
            weights: How much each draw counts, (n,); None for all the same.
        """

    @abstractmethod
    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        """Mean over the rows of -log p(y | f), a row's outputs and pixels summed: what a network is trained on.

        In this scale, a penalty -log prior or a KL divergence is divided by the number of training rows.

        Args:
            f: Network outputs, (batch, *out).
            y: Targets. One that cannot be is an error where looking is free; on a GPU, which would have to be waited
                for, the loss is NaN instead.
            noise: To take instead of the likelihood's own, of the same shape, with derivatives: see `LearnedNoise`.
        """

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> Predictive | None:
        """The predictive where the output is N(mean, variance), if it has a closed form."""
        return None

    @property
    @abstractmethod
    def noise(self) -> Tensor:
        """How noisy it is: a variance, scale or temperature, in double precision; `with_noise(noise)` is the same."""

    @abstractmethod
    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Between which positive numbers to look for the noise, given outputs (n, batch, *out) and their targets.

        0-dim for one number, (D,) for one per entry of the output axis.
        """

    @abstractmethod
    def with_noise(self, noise: Tensor) -> Self:
        """The same likelihood with other noise: a variance, scale or temperature, of the shape of `noise_range`'s."""

    @abstractmethod
    def target_columns(self, outputs: int) -> int:
        """How many numbers a row's target has where the network has so many outputs."""

    def config(self) -> dict[str, Any]:
        """The likelihood as plain JSON values; `likelihood_from` reads it back."""
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = [field for field in fields if not (field.kw_only and getattr(self, field.name) == field.default)]
        return {"kind": type(self).__name__, **{field.name: getattr(self, field.name) for field in shown}}


def require_likelihood(given: Any) -> None:
    """An error for what is no likelihood, its class among them."""
    if not isinstance(given, Likelihood):
        raise BayesNormError(f"likelihood: {given!r} was given; Gaussian() or Categorical() would work.")


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
