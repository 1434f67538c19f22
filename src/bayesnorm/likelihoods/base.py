"""The base class of likelihoods: outputs of n samples become a predictive. Also a training loss with learned noise."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Self

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from ..predictive import P_co
from ..schema import anything, either, flag, listed, mapping, number, one_of, optional, refuse
from .scales import LOG_STD_BOUND, LOG_STD_LIMIT, bounded

_KINDS: dict[str, type[Likelihood]] = {}

_NUMBERS = optional(either(list, listed(number()), number()))
"""The allowed values of fields that are not flags. Each likelihood checks its own numbers."""


class Likelihood(Generic[P_co], ABC):
    """A distribution p(y | f) of targets given network outputs: a frozen dataclass whose fields are plain numbers."""

    least_outputs: ClassVar[int] = 1
    """Number of network outputs for one target or two classes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if ABC not in cls.__bases__:  # classes with abstract methods are not registered
            _KINDS[cls.__name__] = cls

    @abstractmethod
    def predictive(self, f: Tensor, weights: Tensor | None = None) -> P_co:
        """Return the predictive: the mixture over samples.

        Args:
            f: Network outputs, (n, batch, *out).
            weights: Weights of the samples, (n,). Default: equal weights.
        """

    @property
    def uses_sample_variance(self) -> bool:
        """True if this likelihood needs the variance of the outputs across all samples."""
        return False

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> P_co:
        """Return the mixture over some of the samples.

        Args:
            f: Network outputs of those samples, (n, batch, *out).
            weights: Weights of those samples, (n,); None for equal weights.
            variance: Variance of the outputs across all samples, (batch, *out); None unless `uses_sample_variance`.
        """
        return self.predictive(f, weights)

    @abstractmethod
    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        """Return the training loss: the mean over examples of -log p(y | f), summed over outputs and pixels.

        To add a penalty (-log prior, or a KL divergence), divide it by the number of training examples.

        Args:
            f: Network outputs, (batch, *out).
            y: Targets. An impossible target raises an error on a CPU. On a GPU the loss is NaN instead, because a
                check would have to wait for the GPU.
            noise: Noise to use instead of the likelihood's, in the same shape and with derivatives. See
                `LearnedNoise`. Default: None.
        """

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> P_co | None:
        """Return the predictive if the output is N(mean, variance), or None if there is no closed form."""
        return None

    @property
    @abstractmethod
    def noise(self) -> Tensor:
        """The noise in double precision: a variance, scale or temperature. `with_noise(self.noise)` changes nothing."""

    @abstractmethod
    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return the search range (low, high) of the noise, given outputs (n, batch, *out) and their targets.

        Both are positive: 0-dim for one number, (D,) for one number per entry of the output axis.
        """

    @abstractmethod
    def with_noise(self, noise: Tensor) -> Self:
        """Return the same likelihood with other noise: a variance, scale or temperature, shaped as in `noise_range`."""

    @abstractmethod
    def target_columns(self, outputs: int) -> int:
        """Return how many numbers a target has if the network has this number of outputs."""

    def config(self) -> dict[str, Any]:
        """Return the likelihood as plain JSON values, which `likelihood_from` reads."""
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = [field for field in fields if not (field.kw_only and getattr(self, field.name) == field.default)]
        return {"kind": type(self).__name__, **{field.name: getattr(self, field.name) for field in shown}}


class LearnedNoise(nn.Module, Generic[P_co]):
    """A training loss: the loss of a likelihood whose noise level is a trainable parameter.

        noise = LearnedNoise(Gaussian())
        train(model, x, y, loss=noise, parameters=[*model.parameters(), *noise.parameters()], epochs=100, batch_size=32)
        posterior = MCBN(batch_size=32).fit(model, (x, y), likelihood=noise.likelihood())

    The parameter is the logarithm of the likelihood's `noise`: one variance, scale or temperature, or one per output
    if the likelihood has several (`Gaussian((1.0, 1.0))` for two outputs). For `MultiTask` there is one factor per
    task, which sets the weight of the task's loss. A network that overfits learns too little noise; `calibrate` on
    validation data corrects that.

    Args:
        likelihood: The likelihood to start from. Start with too much noise rather than too little, because Adam
            remembers the large first gradients of too little noise for a long time.
    """

    def __init__(self, likelihood: Likelihood[P_co]) -> None:
        super().__init__()
        if not isinstance(likelihood, Likelihood):
            raise BayesNormError(f"likelihood must be an object such as Gaussian(), got {type(likelihood).__name__}.")
        self._start = likelihood
        self.log_noise = nn.Parameter(likelihood.noise.log().to(torch.get_default_dtype()))

    @property
    def noise(self) -> Tensor:
        """The current noise, which is positive."""
        return bounded(self.log_noise, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND).exp()

    def forward(self, f: Tensor, y: Any) -> Tensor:
        """Return the likelihood's loss with the current noise, differentiable in outputs and noise."""
        return self._start.loss(f, y, self.noise)

    def likelihood(self) -> Likelihood[P_co]:
        """Return the likelihood with the current noise as plain numbers."""
        return self._start.with_noise(self.noise.detach())


def require_likelihood(likelihood: Any) -> None:
    """Raise an error if the argument is not a likelihood."""
    if not isinstance(likelihood, Likelihood):
        raise BayesNormError(f"likelihood must be an object such as Gaussian() or Categorical(), got {likelihood!r}.")


def likelihood_from(config: dict[str, Any]) -> Likelihood[Any]:
    """Return the likelihood that `config()` described."""
    mapping(anything, 1)(config, "likelihood")
    fields = dict(config)
    one_of(*sorted(_KINDS))(fields.get("kind"), "likelihood.kind")
    kind = _KINDS[fields.pop("kind")]
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, value in fields.items():
        if name not in defaults:
            refuse("likelihood", name, f"an argument of {kind.__name__}")
        if name != "tasks":  # these are likelihoods, which `MultiTask` reads
            (flag if isinstance(defaults[name], bool) else _NUMBERS)(value, f"likelihood.{name}")
    return kind(**fields)
