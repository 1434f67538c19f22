"""What variational methods share: their arguments, and training weights that have a distribution.

The objective is minus the evidence lower bound per row,

    -1/N ELBO  =  E_q[ mean over rows of -log p(y | x, w) ]  +  KL(q(w) || p(w)) / N,

with N the number of training rows: the divergence is divided by N, not by batches of a step nor by layers. Parameters
that have no distribution (batch norm's scale and shift, embeddings, ...) are trained along as points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

from ..arguments import hold_plain_numbers, require_function, require_positive, require_seed, require_whole
from ..errors import BayesNormError, InputError
from ..likelihoods import Likelihood, require_likelihood
from ..network import (
    Estimator,
    Executable,
    NoisyNetwork,
    Progress,
    TrainData,
    WeightTensor,
    example_rows,
    isolated_torch_randomness,
    own_copy,
    renamed_argument,
    require_finite_weights,
    reset_weights,
    select_output,
    tensors_of,
    unwrap,
    weight_tensors,
)
from ..posterior import VariationalPosterior, WeightDistribution, WeightPrior
from ..training import train
from .looking import fitting_likelihood, require_targets

# Standard deviation that trained weights of zero start with.
LEAST_STD = 1e-4


@dataclass(frozen=True)
class VariationalMethod(ABC):
    """A posterior over linear and convolutional weights, from training on the evidence lower bound.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step; None takes a `DataLoader`'s own, or 32.
        learning_rate: The step size of Adam.
        schedule: "cosine" lets the learning rate fall to zero along half a cosine; "constant" leaves it.
        prior: The prior of every weight: a standard deviation, or a scale mixture (pi, std1, std2).
        prior_center: What the prior lies about: "zero", or the "trained" weights.
        estimator: How weights are drawn in training: "local", "flipout" or "weights"; see `network/variational.py`.
        start: "fresh" weights, or the "trained" ones.
        initial_std: Standard deviation that fresh weights start with.
        delta: Standard deviation that trained weights start with, as a share of their size.
        kl_warmup: Epochs in which the divergence's weight rises to `kl_weight`.
        transform: What every batch's inputs go through in training, as in `training.train`: crops and mirror images.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records them on a GPU: for
            small networks by far the quickest.
        mixed_precision: Whether to train in bfloat16 where the network is on a GPU that has it, as in `training.train`:
            for large convolutions.
        kl_weight: What the divergence counts by. Below 1 the data say more, as if there were more rows, and uncertainty is
            less than that of a posterior.
    """

    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    prior: float | tuple[float, float, float] = 1.0
    prior_center: Literal["zero", "trained"] = "zero"
    estimator: Estimator = "local"
    start: Literal["fresh", "trained"] = "fresh"
    initial_std: float = 0.05
    delta: float = 0.1
    kl_warmup: int = 0
    transform: Callable[[Tensor], Tensor] | None = None
    compiled: bool | str = False
    mixed_precision: bool = False
    kl_weight: float = 1.0

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("epochs", self.epochs)
        require_whole("kl_warmup", self.kl_warmup, 0)
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 2)
        for name in ("learning_rate", "initial_std", "delta", "kl_weight"):
            require_positive(name, getattr(self, name))
        _require_choice("schedule", self.schedule, ("cosine", "constant"))
        _require_choice("prior_center", self.prior_center, ("zero", "trained"))
        _require_choice("estimator", self.estimator, ("local", "flipout", "weights"))
        _require_choice("start", self.start, ("fresh", "trained"))
        require_function("transform", self.transform)
        WeightPrior.of(self.prior)
        if self.kl_warmup >= self.epochs:
            raise BayesNormError(
                f"kl_warmup: {self.kl_warmup} of {self.epochs} epochs, and the divergence would never count in full; "
                f"at most {self.epochs - 1} would work."
            )
        if self.prior_center == "trained" and self.start == "fresh":
            raise BayesNormError('prior_center: "trained" goes with start="trained", and start is "fresh".')

    @abstractmethod
    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> WeightDistribution:
        """The initial distribution of a weight or bias; may draw from the global generator.

        Args:
            tensor: The network's own parameter, which becomes the distribution's mean.
            std: Its initial standard deviations.
            center: The prior's centre; None for zero.
        """

    @torch.inference_mode(False)
    @torch.enable_grad()
    def fit(
        self,
        model: nn.Module,
        train_data: TrainData,
        likelihood: Likelihood | None = None,
        *,
        output: str | int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> VariationalPosterior:
        """Train a copy of the network whose linear and convolutional weights have a distribution.

        Args:
            model: The network; never modified. Parameters that require no gradient stay points with their values.
            train_data: Rows with their targets: a pair (x, y), a `DataLoader` or a `Dataset` of such pairs.
            likelihood: Its `loss` is trained on; None means `Gaussian()` for a network with one real output, and
                classification wants `Categorical()`.
            output: Which entry to use where the network returns a dict or a tuple.
            seed: Same seed, same posterior.
            progress: Called with (done, total) after every epoch.
        """
        require_function("progress", progress)
        if likelihood is not None:
            require_likelihood(likelihood)
        require_finite_weights(unwrap(model))
        executable = Executable(model, output)
        seed = require_seed(seed)
        rows = _rows(train_data)
        with renamed_argument("x", "train_data"):
            seen = example_rows(train_data, seed)
        if self.transform is not None:
            with isolated_torch_randomness(seed, executable.device):
                seen = self.transform(seen.to(executable.device))
        with renamed_argument("x", "train_data"):
            example = executable.input(seen)
        given = fitting_likelihood(executable, example, likelihood)
        require_targets(executable, example, train_data, given)
        network = own_copy(executable.model)
        with isolated_torch_randomness(seed, executable.device):
            weights = self._weights(network)
        prior = WeightPrior.of(self.prior)

        def loss(result: Any, y: Tensor) -> Tensor:
            return given.loss(select_output(result, output, len(y)), y)

        def divergence(_: nn.Module, epoch: int) -> Tensor:
            total = torch.stack([own.kl(prior) for own in weights.values()]).sum()
            return total * (self.kl_weight * min(1.0, epoch / (self.kl_warmup + 1)) / rows)

        noisy = NoisyNetwork(network, weights, self.estimator, example)
        with renamed_argument("data", "train_data"):
            train(
                noisy,
                train_data,
                loss=loss,
                penalties=[divergence],
                epochs=self.epochs,
                batch_size=self.batch_size or (None if isinstance(train_data, DataLoader) else 32),
                optimiser=partial(Adam, lr=self.learning_rate, fused=True),  # many small tensors: a fifth of the time
                schedule=partial(CosineAnnealingLR, T_max=self.epochs) if self.schedule == "cosine" else None,
                transform=self.transform,
                compiled=self.compiled,
                mixed_precision=self.mixed_precision,
                seed=seed,
                progress=progress,
            )
        points = {name: value.detach() for name, value in tensors_of(network).items() if name not in weights}
        fitted = {name: own.requires_grad_(False).eval() for name, own in weights.items()}
        return VariationalPosterior(executable, given, type(self).__name__, fitted, points, prior, rows)

    def _weights(self, network: nn.Module) -> dict[str, WeightDistribution]:
        """Distributions by parameter name, their means the network's own parameters."""
        fresh, made = self.start == "fresh", {}
        found = weight_tensors(network)
        if fresh:
            reset_weights(network, 'start="trained"')
        for tensor in found:
            mean = tensor.parameter.detach()
            std = torch.full_like(mean, self.initial_std) if fresh else (self.delta * mean.abs()).clamp_min(LEAST_STD)
            center = mean.clone() if self.prior_center == "trained" else None
            made[tensor.name] = self.distribution(tensor, std, center)
        return made


def _rows(data: Any) -> int:
    """N, the number of training rows."""
    if isinstance(data, Tensor | np.ndarray) or hasattr(data, "to_numpy"):
        raise InputError(f"train_data: {type(data).__name__} was given without targets; a pair (x, y) would work.")
    try:
        if isinstance(data, tuple | list):
            return len(data[0])
        return len(data.sampler if isinstance(data, DataLoader) else data)  # type: ignore[arg-type]
    except (TypeError, IndexError) as error:
        raise InputError(
            f"train_data: {type(data).__name__} does not tell how many rows there are, by which the prior is weighed; "
            "a pair (x, y), or a data set with a length, would work."
        ) from error


def _require_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BayesNormError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")
