"""The posterior that variational methods share: weight tensors with a distribution each, all other tensors points."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..arguments import require_seed
from ..engines import MonteCarlo
from ..errors import InputError
from ..files import under
from ..likelihoods import Likelihood
from ..network import Executable, State, as_tensor, isolated_torch_randomness, tensors_of, undisturbed
from ..schema import Array, anything, arrays_like, mapping, number, record, refuse, text, whole
from .base import Posterior, require_samples
from .weight_distributions import WeightDistribution, WeightPrior, weight_arrays, weights_from


@dataclass(frozen=True, eq=False)
class VariationalPosterior(Posterior):
    """A distribution over a network's weights; a draw overrides *all* of the network's tensors.

    Args:
        executable: The network; only its architecture counts.
        method: The method that made it, for the record.
        weights: Distributions of weight tensors, by parameter name.
        points: All other parameters and buffers, as they were after training.
        prior: The prior of the weights.
        rows: N, the training rows.
    """

    kind: ClassVar[str] = "variational"
    schema = record(
        method=text,
        weights=mapping(anything, 1),  # each distribution says itself what it consists of
        prior=record(std=number(above=0), share=number(above=0, most=1), other_std=number(above=0)),
        rows=whole(1),
    )

    method: str
    weights: dict[str, WeightDistribution] = dataclasses.field(repr=False)
    points: dict[str, Tensor] = dataclasses.field(repr=False)
    prior: WeightPrior
    rows: int

    @torch.inference_mode(False)
    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> State:
        n, device = require_samples(n), self.executable.device
        with _drawing(require_seed(seed), self._device):
            drawn = {name: self.weights[name].samples(n).to(device) for name in sorted(self.weights)}
        points = {name: value.to(device).expand(n, *value.shape).clone() for name, value in self.points.items()}
        return drawn | points

    @torch.no_grad()
    def kl(self, samples: int = 64, seed: int = 0) -> float:
        """The divergence of the weights' distribution from the prior; where it is not closed, from `samples` samples."""
        with _drawing(require_seed(seed), self._device):
            parts = [self.weights[name].kl(self.prior, require_samples(samples)) for name in sorted(self.weights)]
        return float(torch.stack(parts).double().sum())

    def elbo(self, x: Any, y: Any, samples: int = 64, seed: int = 0) -> float:
        """sum_i E_q[log p(y_i | x_i, w)] - KL(q || p), a lower bound of log p(y | x), from `samples` samples.

        Args:
            x: The training rows.
            y: Their targets.
            samples: How many samples.
            seed: Same seed, same samples.
        """
        outputs = MonteCarlo(samples).outputs(self, x, seed)
        y = as_tensor(y, "y").to(outputs.device)
        if len(y) != outputs.shape[1]:
            raise InputError(f"y: has {len(y)} rows and x {outputs.shape[1]}; they must agree.")
        y = y.to(outputs.dtype) if y.is_floating_point() else y
        losses = torch.stack([self.likelihood.loss(f, y) for f in outputs])
        return -float(losses.double().mean()) * len(y) - self.kl(samples, seed)

    def tensors(self) -> dict[str, Tensor]:
        stored = {f"points/{name}": value for name, value in self.points.items()}
        for name, weights in self.weights.items():
            stored |= {f"weights/{name}/{key}": value for key, value in weights.state_dict().items()}
        return stored

    def config(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "weights": {name: weights.config() for name, weights in self.weights.items()},
            "prior": dataclasses.asdict(self.prior),
            "rows": self.rows,
        }

    @classmethod
    def arrays(cls, model: nn.Module, config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        points = tensors_of(model)
        found: dict[str, Array] = {}
        for name, own in config["weights"].items():
            if name not in points or not points[name].is_floating_point():
                refuse("posterior.weights", name, "weights of the network")
            arrays = weight_arrays(own, points.pop(name), under(f"weights/{name}/", tensors))
            found |= {f"weights/{name}/{key}": array for key, array in arrays.items()}
        return found | {f"points/{name}": array for name, array in arrays_like(points).items()}

    @classmethod
    def restored(
        cls, executable: Executable, likelihood: Likelihood, tensors: dict[str, Tensor], config: dict[str, Any]
    ) -> Self:
        with _drawing(0, executable.device):
            weights = {
                name: weights_from(own, under(f"weights/{name}/", tensors)) for name, own in config["weights"].items()
            }
        points, prior = under("points/", tensors), WeightPrior(**config["prior"])
        found = cls(executable, likelihood, config["method"], weights, points, prior, config["rows"])
        for name, drawn in found.sample(1).items():
            if name in weights and not bool(torch.isfinite(drawn.to(executable.dtype)).all()):
                refuse(f"a draw of {name}", "NaN or infinite", "weights with finite samples")
        return found

    @property
    def _device(self) -> torch.device:
        """The device that samples are made on."""
        return next(iter(self.weights.values())).mean.device


@contextlib.contextmanager
def _drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from torch's generators, which are everyone's: threads take turns, at this and at passes.

    Samples and divergences keep their digits also where the network is to run under autocast.
    """
    with undisturbed((), device), isolated_torch_randomness(seed, device), torch.autocast(device.type, enabled=False):
        yield
