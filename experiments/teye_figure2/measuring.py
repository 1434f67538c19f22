"""Evaluate every method on the test images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.methods import ensemble
from bayesnorm.posterior import BatchNormPosterior, Posterior

from ..evidence import show_progress
from ..image_networks.training import train_together, trained_network
from ..options import Size
from ..pieces import measured_once
from ..segmentation.pixels import Frames, ask, scores
from ..segmentation.plans import SegmentationPlan

SOFTMAX, TEMPERATURE, DROPOUT, ENSEMBLE = "softmax", "softmax, temperature", "MC dropout", "ensemble"
CENTRED_TEMPERATURE = "MCBN about running statistics, temperature"
STOCHASTIC, GAUSSIAN = "StochasticBN", "GaussianBN, correlated"
FIRST = "first 2 layers"


Lazy = Callable[[], Posterior]
"""Makes a posterior when it is needed."""


def published(layers: str, size: int) -> str:
    """Return the name of MCBN as published, with sampled statistics in these layers."""
    return f"MCBN as published, {layers}, M = {size}"


def centred(layers: str, size: int) -> str:
    """Return the name of MCBN centred on the running statistics, with sampled statistics in these layers."""
    return f"MCBN, {layers}, M = {size}"


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        network: One of the segmentation networks.
        recipe: The preset of its recipe.
        dropout: Dropout rate; Bayesian SegNet uses 0.5.
        sizes: Batch sizes M; networks are trained with the first.
        samples: T, the number of samples.
        states: Number of batches whose statistics are kept.
        rank: Rank of the correlated Gaussian.
        members: Networks of the ensemble.
        frames: Number of test images; None means all.
        validation: Number of validation images for the temperature.
    """

    network: str
    recipe: str
    dropout: float
    sizes: tuple[int, int]
    samples: int
    states: int
    rank: int
    members: int
    frames: int | None
    validation: int


PRESETS = {
    Size.quick: Preset("small-segnet", "quick", 0.1, (10, 36), 8, 24, 12, members=3, frames=20, validation=10),
    Size.paper: Preset("segnet", "paper", 0.5, (10, 36), 20, 64, 32, members=3, frames=None, validation=24),
}
# Images whose maps are drawn, as fractions of all: the first is at dusk.
SHOWN = (0.1, 0.5, 0.85)


@dataclass(frozen=True, eq=False)
class Setup:
    """Networks, images and posteriors, each made when it is needed.

    Args:
        preset: How much to measure.
        members: Networks of one architecture; the first is used by methods with a single network.
        told: Information about the networks.
        plan: Training plan of the first.
        device: The device.
    """

    preset: Preset
    members: list[nn.Module]
    told: list[dict[str, Any]]
    plan: SegmentationPlan
    device: str

    @classmethod
    def from_preset(cls, preset: Preset, networks: Path, device: str, workers: int = 1) -> Setup:
        """Train the missing networks, and return the setup."""
        plans = {
            f"{preset.network}_dropout_{seed}": SegmentationPlan.from_preset(
                preset.network, preset.recipe, seed, dropout=preset.dropout
            )
            for seed in range(preset.members)
        }
        train_together(plans, networks, device, workers)
        members, told = [], []
        for name, plan in plans.items():
            show_progress(f"{name}: training, unless already trained")
            network, facts = trained_network(plan, networks, name, device)
            members.append(network)
            told.append({key: facts[key] for key in ("mean IoU", "accuracy", "class accuracy", "nll", "seconds")})
        return cls(preset, members, told, next(iter(plans.values())), device)

    @cached_property
    def frames(self) -> Frames:
        """Return the test images."""
        return Frames.with_distances(*self._inputs("test", self.preset.frames))

    @cached_property
    def train(self) -> Tensor:
        """Return all training images as network input."""
        return self._inputs("train", self.plan.recipe.images)[0]

    @cached_property
    def validation(self) -> tuple[Tensor, Tensor]:
        """Return validation images and their labels."""
        return self._inputs("val", self.preset.validation)

    @property
    def shown(self) -> list[int]:
        """Return the indices of the test images whose maps are drawn."""
        return [int(share * len(self.frames.x)) for share in SHOWN]

    @property
    def likelihood(self) -> Any:
        """Return the likelihood of classes, which leaves out unlabelled pixels."""
        return self.plan.likelihood

    def methods(self) -> dict[str, Lazy]:
        """Return all methods."""
        size, large = self.preset.sizes
        network, preset = self.members[0], self.preset

        @cache
        def mcbn(center: str, batch: int) -> BatchNormPosterior:
            return self._fitted(bn.MCBN(batch, preset.states, center=center))  # type: ignore[arg-type]

        def some(center: str, batch: int, chosen: slice) -> Posterior:
            whole = mcbn(center, batch)
            return whole.at_layers([layer.name for layer in whole.layers[chosen]])

        point = partial(bn.deterministic, network, self.likelihood)
        results: dict[str, Lazy] = {
            SOFTMAX: point,
            TEMPERATURE: lambda: self._tempered(point()),
            DROPOUT: lambda: bn.MCDropout().fit(network, likelihood=self.likelihood),
        }
        for batch in (size, large):
            results[published(FIRST, batch)] = partial(some, "batch", batch, slice(2))
            results[published("all layers", batch)] = partial(mcbn, "batch", batch)
            results[centred("all layers", batch)] = partial(mcbn, "running", batch)
        results[centred("last 2 layers", size)] = partial(some, "running", size, slice(-2, None))
        results |= {
            CENTRED_TEMPERATURE: lambda: self._tempered(mcbn("running", size)),
            STOCHASTIC: lambda: self._fitted(bn.StochasticBN(size, preset.states)),
            GAUSSIAN: lambda: self._fitted(bn.GaussianBN(size, preset.states, rank=preset.rank)),
            ENSEMBLE: lambda: ensemble(self.members, self.likelihood),
        }
        return results

    def _fitted(self, method: Any) -> Any:
        return method.fit(self.members[0], self.train, self.likelihood)

    def _tempered(self, posterior: Posterior) -> Posterior:
        samples = min(self.preset.samples, posterior.default_samples)
        return bn.calibrate(posterior, *self.validation, batch_size=False, samples=samples)

    def _inputs(self, split: str, count: int | None) -> tuple[Tensor, Tensor]:
        x, y = self.plan.frames(split, count)
        return self.plan.transform().scaled(x.to(self.device)), y.to(self.device)


def measure(setup: Setup, stored: Path) -> dict[str, dict[str, Any]]:
    """Return the scores of every method; each is stored in a file."""
    results = {}
    for number, (name, make) in enumerate(setup.methods().items()):
        show_progress(name)
        settings = {"preset": asdict(setup.preset), "method": name, "networks": setup.told}
        results[name] = measured_once(stored / f"{number}.json", settings, partial(_scored, setup, make))
    return results


def _scored(setup: Setup, make: Lazy) -> dict[str, Any]:
    with torch.no_grad():
        return scores(ask(make(), setup.frames, setup.preset.samples), setup.frames)
