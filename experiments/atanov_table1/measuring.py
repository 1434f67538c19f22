"""Measure one row of the table: networks with different seeds, and every method on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.methods import ensemble
from bayesnorm.posterior import Posterior

from ..evidence import show_progress
from ..image_networks.asking import OTHER_FIVE, Asked, Setting, entropies, load_asked, uncertainty_scores
from ..image_networks.datasets import load_images
from ..image_networks.training import Plan, train_together, trained_network
from ..pieces import measured_once

QUANTILES = 101
"""Number of stored points of an entropy's distribution function."""


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        settings: Rows of the table, by name.
        recipe: The preset of the networks' recipes.
        members: Networks of an ensemble.
        asked: Images of each kind that are predicted; None means all.
        batch_size: Batch size of a sample's statistics; None means that of training, as in the paper.
        trained_with: Images per step of training, if not the recipe's.
        dropout: Rate of the networks with dropout; the paper does not state its own.
        epochs: Number of epochs, if not the recipe's.
        states: Number of batches of training images for the statistics.
        samples: Samples per prediction; an ensemble divides them between its members.
    """

    settings: dict[str, Setting]
    recipe: str
    members: int
    asked: int | None = None
    batch_size: int | None = None
    trained_with: int | None = None
    dropout: float = 0.2
    epochs: int | None = None
    states: int = 256
    samples: int = 50


PRESETS: dict[str, Preset] = {
    "quick": Preset(
        {"resnet20": Setting("resnet20", "cifar5", OTHER_FIVE, "resnet18")},
        "quick",
        members=2,
        asked=200,
        epochs=3,
        states=32,
        samples=8,
    ),
    "paper": Preset(
        {
            "lenet5": Setting("lenet5", "mnist", "notmnist", "lenet5"),
            "vgg11": Setting("vgg11", "cifar5", OTHER_FIVE, "vgg11"),
            "resnet18": Setting("resnet18", "cifar5", OTHER_FIVE, "resnet18"),
        },
        "paper",
        members=3,
        trained_with=128,
        epochs=40,
        samples=20,
    ),
}


def measure_setting(
    setting: Setting,
    preset: Preset,
    members: int,
    device: str,
    networks: Path,
    stored: Path,
    workers: int = 1,
    compiled: bool | str = "graph",
) -> dict[str, Any]:
    """Return every method's scores and entropies as plain values; each method is stored in a file.

    Args:
        setting: What to measure.
        preset: How much to measure.
        members: Networks of an ensemble; scores of single networks are means over as many.
        device: The device.
        networks: Folder of the trained networks.
        stored: Folder of the stored results.
        workers: Number of networks that are trained at once.
        compiled: How their steps run.
    """
    plan = _plan(setting, preset, 0)
    rates = (None, preset.dropout)
    plans = {
        _name(setting, seed, rate): _plan(setting, preset, seed, rate) for rate in rates for seed in range(members)
    }
    train_together(plans, networks, device, workers, compiled)
    asked = load_asked(plan, [setting.outside], preset.asked, device)
    pixels, _ = load_images(setting.data, "train", plan.recipe.images)
    posteriors = _Posteriors(setting, preset, members, networks, plan.transform().scaled(pixels.to(device)))
    settings: dict[str, Any] = {
        "setting": asdict(setting),
        "recipe": asdict(plan.recipe),
        "samples": preset.samples,
        "members": members,
        "batch_size": posteriors.batch_size,
        "dropout": preset.dropout,
        "training images": len(pixels),
        "asked": {"inside": len(asked.x), "outside": len(asked.outside[setting.outside])},
    }
    results = {}
    for name, make in posteriors.by_method().items():
        show_progress(f"{setting.network} on {setting.data}: {name}")
        results[name] = measured_once(stored / f"{name}.json", settings, partial(_scored, make, asked, preset.samples))
    show_progress("")
    return settings | {"methods": results}


def _name(setting: Setting, seed: int, dropout: float | None) -> str:
    kind = "" if dropout is None else f"dropout{dropout:g}_"
    return f"{setting.network}_{setting.data}_{kind}{seed}"


def _plan(setting: Setting, preset: Preset, seed: int, dropout: float | None = None) -> Plan:
    changes: dict[str, Any] = {"dropout": dropout, "epochs": preset.epochs, "batch_size": preset.trained_with}
    return Plan.from_preset(setting.network, setting.data, preset.recipe, seed, **changes)


class _Posteriors:
    """The posteriors of all methods, on networks that are trained when they are first needed.

    Args:
        setting: What to measure.
        preset: How much to measure.
        members: Number of networks of each kind.
        folder: Folder of trained networks.
        training: Training images as network input.
    """

    def __init__(self, setting: Setting, preset: Preset, members: int, folder: Path, training: Tensor) -> None:
        self._setting, self._preset, self._members = setting, preset, members
        self._folder, self._training = folder, training
        self.batch_size = preset.batch_size or _plan(setting, preset, 0).recipe.batch_size
        options: dict[str, Any] = {"batch_size": self.batch_size, "states": preset.states}
        self._networks: dict[float | None, list[nn.Module]] = {}
        self.stochastic = cache(partial(self._of_statistics, bn.StochasticBN(**options)))
        self.mcbn = cache(partial(self._of_statistics, bn.MCBN(**options)))
        self.correlated = cache(partial(self._of_statistics, bn.GaussianBN(rank=preset.states // 4, **options)))

    def by_method(self) -> dict[str, Callable[[], list[Posterior]]]:
        """Return functions for the posteriors of every method: one for each network, or one ensemble of all."""
        return {
            "softmax": lambda: self._posteriors(_point),
            "SBN": lambda: self._posteriors(self.stochastic),
            "MCBN": lambda: self._posteriors(self.mcbn),
            "correlated Gaussian": lambda: self._posteriors(self.correlated),
            "Dropout": lambda: self._posteriors(_dropping, self._preset.dropout),
            "Dropout, SBN": lambda: self._posteriors(self._dropping_too, self._preset.dropout),
            "DeepEnsemble": lambda: [ensemble(self._posteriors(_point))],
            "DeepEnsemble, SBN": lambda: [ensemble(self._posteriors(self.stochastic))],
            "DeepEnsemble, MCBN": lambda: [ensemble(self._posteriors(self.mcbn))],
        }

    def _posteriors(self, make: Callable[[nn.Module], Posterior], dropout: float | None = None) -> list[Posterior]:
        if dropout not in self._networks:
            self._networks[dropout] = [self._trained(seed, dropout) for seed in range(self._members)]
        return [make(network) for network in self._networks[dropout]]

    def _trained(self, seed: int, dropout: float | None) -> nn.Module:
        plan, name = _plan(self._setting, self._preset, seed, dropout), _name(self._setting, seed, dropout)
        return trained_network(plan, self._folder, name, self._training.device.type)[0]

    def _of_statistics(self, method: Any, network: nn.Module) -> Posterior:
        return method.fit(network, self._training, bn.Categorical())

    def _dropping_too(self, network: nn.Module) -> Posterior:
        return bn.combine(_dropping(network), self.stochastic(network))


def _point(network: nn.Module) -> Posterior:
    return bn.deterministic(network, bn.Categorical())


def _dropping(network: nn.Module) -> Posterior:
    return bn.MCDropout().fit(network, likelihood=bn.Categorical())


def _scored(make: Callable[[], list[Posterior]], asked: Asked, samples: int) -> dict[str, Any]:
    """Return the mean scores of posteriors with the standard error over them, and the first one's entropies."""
    posteriors = make()

    def predict(posterior: Posterior) -> Any:
        return lambda x: posterior.predict(x, bn.MonteCarlo(samples))

    per_posterior = [uncertainty_scores(predict(posterior), asked) for posterior in posteriors]
    (kind,) = asked.outside

    def over_networks(read: Callable[[dict[str, Any]], float]) -> tuple[float, float | None]:
        values = np.array([read(scores) for scores in per_posterior])
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        return float(values.mean()), error

    points = np.linspace(0, 1, QUANTILES)
    first = entropies(predict(posteriors[0]), asked)
    return {
        "error_percent": over_networks(lambda scores: 100 * (1 - scores["accuracy"])),
        "nll": over_networks(lambda scores: scores["nll"]),
        "ece": over_networks(lambda scores: scores["ece"]),
        "auroc": over_networks(lambda scores: scores["outside"][kind]["entropy"]["auroc"]),
        "auroc mutual information": over_networks(
            lambda scores: scores["outside"][kind]["mutual information"]["auroc"]
        ),
        "entropy quantiles": {name: np.quantile(values, points).round(5).tolist() for name, values in first.items()},
    }
