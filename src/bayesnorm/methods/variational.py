"""The base classes of variational methods: their arguments, and the training of weights that have a distribution.

The objective is the negative evidence lower bound (ELBO) per example,

    -1/N ELBO  =  E_q[ mean over examples of -log p(y | x, w) ]  +  KL(q(w) || p(w)) / N,

with N the number of training examples. The divergence is divided by N, not by the number of batches or layers.
Parameters without a distribution (batch norm's scale and shift, embeddings, ...) are trained as points.
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

from ..arguments import hold_plain_numbers, require_function, require_positive, require_whole
from ..errors import BayesNormError, InputError
from ..likelihoods import Likelihood
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
    tensors_of,
    unwrap,
    weight_tensors,
)
from ..posterior import GaussianWeights, GroupWeights, VariationalPosterior, WeightDistribution, WeightPrior
from .fitting import P, checked_seed, fitting_likelihood, require_one_input, require_targets, train_on

# Minimum initial standard deviation, for trained weights that are zero.
LEAST_STD = 1e-4


@dataclass(frozen=True)
class VariationalMethod(ABC):
    """Learn a posterior over linear and convolutional weights by training on the evidence lower bound.

    Args:
        epochs: Number of passes over the training data. Default: 100.
        batch_size: Examples per step. Default: None, the batch size of a `DataLoader`, or 32.
        learning_rate: Learning rate of Adam. Default: 0.001.
        schedule: "cosine" lowers the learning rate to zero along half a cosine, "constant" keeps it. Default: "cosine".
        prior: Prior of every weight: a standard deviation, or a scale mixture (pi, std1, std2). Default: 1.
        prior_center: Centre of the prior: "zero", or the "trained" weights. Default: "zero".
        estimator: How weights are sampled in training: "local", "flipout" or "weights"; see
            `network/editing/variational.py`. Default: "local".
        start: Start from "fresh" weights, or from the "trained" weights. Default: "fresh".
        initial_std: Initial standard deviation of fresh weights. Default: 0.05.
        delta: Initial standard deviation of trained weights, relative to their magnitude. Default: 0.1.
        kl_warmup: Number of epochs in which the weight of the KL divergence rises to `kl_weight`. Default: 0.
        transform: Augmentation of every training batch's inputs, as in `training.train`. Default: None.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records a CUDA graph, which
            is the fastest mode for small networks. Default: False.
        mixed_precision: Whether to train in bfloat16 on GPUs that support it, as in `training.train`. It helps with
            large convolutions. Default: False.
        kl_weight: Weight of the KL divergence. Below 1 the data count more, as if there were more examples, and the
            epistemic uncertainty is smaller than the posterior's. Default: 1.
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
        WeightPrior.parse(self.prior)
        if self.kl_warmup >= self.epochs:
            raise BayesNormError(
                f"kl_warmup is {self.kl_warmup}, but with epochs={self.epochs} it must be at most {self.epochs - 1}. "
                "Otherwise the KL divergence never reaches its full weight."
            )
        if self.prior_center == "trained" and self.start == "fresh":
            raise BayesNormError('prior_center="trained" needs start="trained", but start is "fresh".')

    @abstractmethod
    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> WeightDistribution:
        """Return the initial distribution of a weight or bias. It may use the global random generator.

        Args:
            tensor: The network's parameter, which becomes the distribution's mean.
            std: Its initial standard deviations.
            center: Centre of the prior; None for zero.
        """

    @torch.inference_mode(False)
    @torch.enable_grad()
    def fit(
        self,
        model: nn.Module,
        train_data: TrainData,
        likelihood: Likelihood[P] | None = None,
        *,
        output: str | int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> VariationalPosterior[P]:
        """Train a copy of the network whose linear and convolutional weights have a distribution; return the posterior.

        Args:
            model: The network. It is never modified. Parameters that require no gradient keep their values.
            train_data: Training data with targets: a pair (x, y), a `DataLoader` or a `Dataset` of such pairs.
            likelihood: The network is trained on its `loss`. Pass `Categorical()` for classification. Default: None,
                `Gaussian()` for a network with one real output.
            output: The entry to use if the network returns a dict or a tuple. Default: None.
            seed: Seed of initial weights and training. Default: 0.
            progress: Called with (done, total) after every epoch. Default: None.
        """
        seed = checked_seed(seed, likelihood, progress)
        require_finite_weights(unwrap(model))
        executable = Executable(model, output)
        require_one_input(executable)
        rows = _rows(train_data)
        with renamed_argument("x", "train_data"):
            seen = example_rows(train_data, seed)
        if self.transform is not None:
            with isolated_torch_randomness(seed, executable.device):
                seen = self.transform(seen.to(executable.device))
        with renamed_argument("x", "train_data"):
            example = executable.input(seen)
        fitting = fitting_likelihood(executable, example, likelihood)
        require_targets(executable, example, train_data, fitting)
        network = own_copy(executable.model)
        with isolated_torch_randomness(seed, executable.device):
            weights = self._weights(network)
        prior = WeightPrior.parse(self.prior)

        def divergence(_: nn.Module, epoch: int) -> Tensor:
            total = torch.stack([weight.kl(prior) for weight in weights.values()]).sum()
            return total * (self.kl_weight * min(1.0, epoch / (self.kl_warmup + 1)) / rows)

        noisy = NoisyNetwork(network, weights, self.estimator, example)
        train_on(
            fitting,
            noisy,
            train_data,
            output=output,
            batch_size=self.batch_size,
            penalties=[divergence],
            epochs=self.epochs,
            optimiser=partial(Adam, lr=self.learning_rate, fused=True),  # five times faster for many small tensors
            schedule=partial(CosineAnnealingLR, T_max=self.epochs) if self.schedule == "cosine" else None,
            transform=self.transform,
            compiled=self.compiled,
            mixed_precision=self.mixed_precision,
            seed=seed,
            progress=progress,
        )
        points = {name: value.detach() for name, value in tensors_of(network).items() if name not in weights}
        fitted = {name: weight.requires_grad_(False).eval() for name, weight in weights.items()}
        return VariationalPosterior(executable, fitting, type(self).__name__, fitted, points, prior, rows)

    def _weights(self, network: nn.Module) -> dict[str, WeightDistribution]:
        """Return distributions by parameter name. Their means are the network's parameters."""
        fresh, made = self.start == "fresh", {}
        tensors = weight_tensors(network)
        if fresh:
            reset_weights(network, 'start="trained"')
        for tensor in tensors:
            mean = tensor.parameter.detach()
            std = torch.full_like(mean, self.initial_std) if fresh else (self.delta * mean.abs()).clamp_min(LEAST_STD)
            center = mean.clone() if self.prior_center == "trained" else None
            made[tensor.name] = self.distribution(tensor, std, center)
        return made


def _rows(data: Any) -> int:
    """Return the number of training examples."""
    if isinstance(data, Tensor | np.ndarray) or hasattr(data, "to_numpy"):
        raise InputError(f"train_data must be a pair (x, y) with targets, got {type(data).__name__}.")
    try:
        if isinstance(data, tuple | list):
            return len(data[0])
        return len(data.sampler if isinstance(data, DataLoader) else data)  # type: ignore[arg-type]
    except (TypeError, IndexError) as error:
        raise InputError(
            f"train_data of type {type(data).__name__} has no length, but the number of training examples is needed to "
            "weight the prior. Pass a pair (x, y), or a data set with a length."
        ) from error


def _require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BayesNormError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


@dataclass(frozen=True)
class GroupMethod(VariationalMethod):
    """A posterior under which whole units and filters can become noise; arguments as in `VariationalMethod`."""

    initial_std: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, tuple | list):
            raise BayesNormError(
                f"prior must be one standard deviation, got {self.prior!r}. Given the scale of a group, its weights "
                "have a Gaussian prior."
            )
        if self.prior_center != "zero":
            raise BayesNormError('prior_center must be "zero" for group priors, got "trained".')

    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> WeightDistribution:
        if tensor.is_bias:
            return GaussianWeights(tensor.parameter, std, tensor.axis, center)
        size = float(tensor.parameter.detach().double().square().mean().sqrt())
        return self.groups(tensor, std, size or 1.0)

    @abstractmethod
    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> GroupWeights:
        """Return the initial distribution of a weight tensor whose entries have magnitude `unit`."""
