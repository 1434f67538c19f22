"""The base of every likelihood: it takes the outputs of n samples and gives a predictive."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from torch import Tensor

from ..errors import BayesNormError
from ..predictive import Predictive
from ..schema import anything, either, flag, listed, mapping, number, one_of, optional, refuse

_KINDS: dict[str, type[Likelihood]] = {}

_NUMBERS = optional(either(list, listed(number()), number()))
"""What fields that are not true or false consist of; which numbers one takes is its likelihood's to say."""


class Likelihood(ABC):
    """A distribution p(y | f) of targets given network outputs; a frozen dataclass whose fields are plain numbers."""

    least_outputs: ClassVar[int] = 1
    """Number of outputs that a row with one target, or with two classes, needs."""

    def __init_subclass__(cls) -> None:
        if ABC not in cls.__bases__:  # a base with abstract methods is no likelihood yet
            _KINDS[cls.__name__] = cls

    @abstractmethod
    def predictive(self, f: Tensor, weights: Tensor | None = None) -> Predictive:
        """Return the mixture over samples.

        Args:
            f: Network outputs, (n, batch, *out).
            weights: How much each draw counts, (n,); None for all the same.
        """

    @property
    def listens(self) -> bool:
        """Whether what a draw says depends on the variance of the outputs over all samples."""
        return False

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> Predictive:
        """Return the mixture over some of the samples.

        Args:
            f: Network outputs of those samples, (n, batch, *out).
            weights: How much each of them counts, (n,); None for all the same.
            variance: Variance of the outputs over all samples, (batch, *out); None unless the likelihood `listens`.
        """
        return self.predictive(f, weights)

    @abstractmethod
    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        """Return the mean over rows of -log p(y | f), a row's outputs and pixels summed: what a network is trained on.

        Beside it, a penalty -log prior or a KL divergence is divided by the number of training rows.

        Args:
            f: Network outputs, (batch, *out).
            y: Targets. An impossible one raises an error on a CPU; on a GPU, where looking means waiting for it, the
                loss is NaN instead.
            noise: Noise to take instead of the likelihood's own, in the same shape and with derivatives; see
                `LearnedNoise`.
        """

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> Predictive | None:
        """Return the predictive where the output is N(mean, variance), or None if it has no closed form."""
        return None

    @property
    @abstractmethod
    def noise(self) -> Tensor:
        """The noise in double precision: a variance, scale or temperature; `with_noise(self.noise)` changes nothing."""

    @abstractmethod
    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return the range (low, high) to search for the noise, given outputs (n, batch, *out) and their targets.

        Both are positive: 0-dim for one number, (D,) for one per entry of the output axis.
        """

    @abstractmethod
    def with_noise(self, noise: Tensor) -> Self:
        """Return the same likelihood with other noise: a variance, scale or temperature, shaped as in `noise_range`."""

    @abstractmethod
    def target_columns(self, outputs: int) -> int:
        """Return how many numbers a row's target has where the network has so many outputs."""

    def config(self) -> dict[str, Any]:
        """Return the likelihood as plain JSON values; `likelihood_from` reads it back."""
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = [field for field in fields if not (field.kw_only and getattr(self, field.name) == field.default)]
        return {"kind": type(self).__name__, **{field.name: getattr(self, field.name) for field in shown}}


def require_likelihood(given: Any, networks: bool = True) -> None:
    """Refuse what is no likelihood, such as the class of one; and noise for each of several networks where it is one.

    Args:
        given: What was given for a likelihood.
        networks: Whether it may be one for the networks of a stack.
    """
    if not isinstance(given, Likelihood):
        raise BayesNormError(f"likelihood must be Gaussian() or Categorical(), got {given!r}.")
    if not networks and getattr(given, "axis", -1) == 0 and given.noise.dim():
        raise BayesNormError(
            f"likelihood: {type(given).__name__} has a noise for each network of a stack (axis=0), and this is one "
            "network; axis=-1, or 1 for the channels of maps, would work."
        )


def likelihood_from(config: dict[str, Any]) -> Likelihood:
    """Make the likelihood that `config()` described."""
    mapping(anything, 1)(config, "likelihood")
    fields = dict(config)
    one_of(*sorted(_KINDS))(fields.get("kind"), "likelihood.kind")
    kind = _KINDS[fields.pop("kind")]
    known = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, value in fields.items():
        if name not in known:
            refuse("likelihood", name, f"what {kind.__name__} takes")
        if name != "tasks":  # likelihoods themselves, which `MultiTask` reads
            (flag if isinstance(known[name], bool) else _NUMBERS)(value, f"likelihood.{name}")
    return kind(**fields)
