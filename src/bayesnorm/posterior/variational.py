"""The posterior of variational methods: weight tensors with a distribution each, and all other tensors as points."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..arguments import require_seed, require_whole
from ..engines import MonteCarlo
from ..errors import InputError
from ..files import prefixed, under
from ..likelihoods import Likelihood
from ..network import Executable, State, as_tensor, isolated_torch_randomness, restore_state, tensors_of
from ..predictive import P_co
from ..schema import Array, anything, arrays_like, mapping, number, record, refuse, text, whole
from .base import Config, Move, Posterior, Tensors
from .weight_distributions import WeightDistribution, WeightPrior, weight_arrays, weights_from


@dataclass(frozen=True, eq=False, repr=False)
class VariationalPosterior(Posterior[P_co]):
    """A distribution over a network's weights. A sample overrides *all* of the network's tensors.

    Args:
        executable: The network; only its architecture is used.
        method: Name of the method that made it.
        weights: Distributions of weight tensors, by parameter name.
        points: All other parameters and buffers after training.
        prior: The prior of the weights.
        rows: Number of training examples.
    """

    kind: ClassVar[str] = "variational"
    schema = record(
        method=text,
        weights=mapping(anything, 1),  # each distribution has its own schema
        prior=record(std=number(above=0), share=number(above=0, most=1), other_std=number(above=0)),
        rows=whole(1),
    )

    method: str
    weights: dict[str, WeightDistribution] = dataclasses.field(repr=False)
    points: dict[str, Tensor] = dataclasses.field(repr=False)
    prior: WeightPrior
    rows: int

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset(tensors_of(self.model))

    def over(self, move: Move) -> Self:
        posterior = super().over(move)
        device = posterior.executable.device
        weights = {name: copy.deepcopy(weight).to(device) for name, weight in self.weights.items()}
        points = {name: value.to(device) for name, value in self.points.items()}
        return dataclasses.replace(posterior, weights=weights, points=points)

    @torch.inference_mode(False)
    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> State:
        n, device = require_whole("n", n), self.executable.device
        with _sampling_weights(require_seed(seed), self._device):
            sampled = {name: self.weights[name].samples(n).to(device) for name in sorted(self.weights)}
        points = {name: value.to(device).expand(n, *value.shape).clone() for name, value in self.points.items()}
        return sampled | points

    @torch.no_grad()
    def kl(self, samples: int = 64, seed: int = 0) -> float:
        """Return the KL divergence of the weights from the prior, estimated from samples if it has no closed form."""
        with _sampling_weights(require_seed(seed), self._device):
            parts = [self.weights[name].kl(self.prior, require_whole("n", samples)) for name in sorted(self.weights)]
        return float(torch.stack(parts).double().sum())

    def elbo(self, x: Any, y: Any, samples: int = 64, seed: int = 0) -> float:
        """Return sum_i E_q[log p(y_i | x_i, w)] - KL(q || p), a lower bound of log p(y | x), estimated from samples.

        Args:
            x: The training inputs.
            y: Their targets.
            samples: Number of samples. Default: 64.
            seed: Seed of the samples. Default: 0.
        """
        outputs = MonteCarlo(samples).outputs(self, x, seed)
        y = as_tensor(y, "y").to(outputs.device)
        if len(y) != outputs.shape[1]:
            raise InputError(f"y has {len(y)} rows, but x has {outputs.shape[1]}. Pass one target per row of x.")
        y = y.to(outputs.dtype) if y.is_floating_point() else y
        losses = torch.stack([self.likelihood.loss(f, y) for f in outputs])
        return -float(losses.double().mean()) * len(y) - self.kl(samples, seed)

    def tensors(self) -> Tensors:
        tensors: Tensors = prefixed("points/", self.points)
        for name, weights in self.weights.items():
            tensors |= prefixed(f"weights/{name}/", weights.state_dict())
        return tensors

    def config(self) -> Config:
        return {
            "method": self.method,
            "weights": {name: weights.config() for name, weights in self.weights.items()},
            "prior": dataclasses.asdict(self.prior),
            "rows": self.rows,
        }

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        points = tensors_of(model)
        described: dict[str, Array] = {}
        for name, weight in config["weights"].items():
            if name not in points or not points[name].is_floating_point():
                refuse("posterior.weights", name, "the name of a weight of the network")
            arrays = weight_arrays(weight, points.pop(name), under(f"weights/{name}/", tensors))
            described |= prefixed(f"weights/{name}/", arrays)
        return described | prefixed("points/", arrays_like(points))

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        with _sampling_weights(0, executable.device):
            weights = {
                name: weights_from(weight, under(f"weights/{name}/", tensors))
                for name, weight in config["weights"].items()
            }
        points, prior = under("points/", tensors), WeightPrior(**config["prior"])
        posterior = cls(executable, likelihood, config["method"], weights, points, prior, config["rows"])
        for name, sampled in posterior.sample(1).items():
            if name in weights and not bool(torch.isfinite(sampled.to(executable.dtype)).all()):
                refuse(f"a sample of {name}", "NaN or infinite", "finite")
        return posterior

    @property
    def _device(self) -> torch.device:
        """The device of the samples."""
        return next(iter(self.weights.values())).mean.device


@contextlib.contextmanager
def _sampling_weights(seed: int, device: torch.device) -> Iterator[None]:
    """Sample from torch's global generators, one thread at a time, together with forward passes.

    Samples and divergences keep full precision, even if the network runs under autocast.
    """
    with restore_state((), device), isolated_torch_randomness(seed, device), torch.autocast(device.type, enabled=False):
        yield
