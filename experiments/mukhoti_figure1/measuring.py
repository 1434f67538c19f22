"""Measure one panel of the figure: networks retrained for every batch size, and one network for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.network import isolated_torch_randomness
from bayesnorm.posterior import BatchNormPosterior, Posterior

from ..evidence import show_progress
from ..image_networks.asking import Asked, Setting, load_asked, uncertainty_scores
from ..image_networks.datasets import load_images
from ..image_networks.training import Plan, train_together, trained_network
from ..pieces import measured_once

DRAWS = 20
"""Samples per prediction, as in the paper."""
STATES = 40
"""Number of batches of training images for the samples."""


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        panels: The panels, by name.
        recipe: The preset of the networks' recipes.
        epochs: Batch sizes of retrained networks, and their epochs: large batches get as many steps as training needs.
        one_for_all: The batch size of the network that also gets effective batch sizes.
        effective: Effective batch sizes.
        asked: Images of each kind that are predicted; None means all.
        bound_rows: Number of training images for the ELBO's likelihood.
        bound_samples: Samples for it.
        mean_field_epochs: Epochs of Bayes by Backprop, which starts at the trained weights.
        dropout: Rate of the network with dropout.
    """

    panels: dict[str, Setting]
    recipe: str
    epochs: dict[int, int]
    one_for_all: int
    effective: tuple[int, ...]
    asked: int | None
    bound_rows: int
    bound_samples: int
    mean_field_epochs: int
    dropout: float = 0.1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the batch sizes of retrained networks."""
        return tuple(self.epochs)


PRESETS: dict[str, Preset] = {
    "quick": Preset(
        panels={"cifar10": Setting("resnet20", "cifar10", "svhn", "resnet50")},
        recipe="quick",
        epochs={32: 4, 128: 4},
        one_for_all=128,
        effective=(32, 128, 512),
        asked=200,
        bound_rows=200,
        bound_samples=8,
        mean_field_epochs=2,
    ),
    "paper": Preset(
        panels={
            "cifar10": Setting("resnet18", "cifar10", "svhn", "resnet50"),
            "fashion-mnist": Setting("resnet18", "fashion-mnist", "mnist", "resnet50"),
            "fashion-mnist, VGG-16": Setting("vgg16", "fashion-mnist", "mnist", "vgg16"),
        },
        recipe="paper",
        epochs={32: 16, 128: 16, 512: 32, 2048: 80},
        one_for_all=128,
        effective=(8, 32, 128, 512, 2048),
        asked=5000,
        bound_rows=2000,
        bound_samples=20,
        mean_field_epochs=3,
    ),
}


def measure_panel(
    panel: Setting,
    preset: Preset,
    device: str,
    networks: Path,
    stored: Path,
    workers: int = 1,
    compiled: bool | str = "graph",
) -> dict[str, Any]:
    """Return the results of a panel as plain values; each part is stored in a file and not measured twice.

    Args:
        panel: The panel.
        preset: How much to measure.
        device: The device.
        networks: Folder of the trained networks.
        stored: Folder of the stored parts.
        workers: Number of networks that are trained at once.
        compiled: How their steps run.
    """
    plans = _plans(panel, preset)
    common = plans[f"M{preset.one_for_all}"]
    asked = load_asked(common, [panel.outside], preset.asked, device)
    pixels, labels = load_images(panel.data, "train", common.recipe.images)
    training = common.transform().scaled(pixels.to(device)), labels.to(device)
    with isolated_torch_randomness(0):
        seen = common.transform()(pixels).contiguous().to(device)

    stem = f"{panel.network}_{panel.data}"
    train_together({f"{stem}_{name}": plan for name, plan in plans.items()}, networks, device, workers, compiled)

    def network(name: str) -> nn.Module:
        show_progress(f"{panel.network} on {panel.data}: {name}")
        return trained_network(plans[name], networks, f"{stem}_{name}", device)[0]

    @cache
    def at_size(size: int) -> BatchNormPosterior:
        return mcbn(network(f"M{size}"), seen, size)

    def piece(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "panel": asdict(panel),
            "plan": common.described(),
            "epochs": preset.epochs,
            "asked": preset.asked,
        }
        return measured_once(stored / f"{name}.json", settings, measure)

    retrained = {
        str(size): piece(f"retrained_{size}", lambda size=size: _scored(at_size(size), asked))  # type: ignore[misc]
        for size in preset.sizes
    }
    effective = {
        str(size): piece(
            f"effective_{size}",
            lambda size=size: _scored(at_size(preset.one_for_all).at_batch_size(size), asked),  # type: ignore[misc]
        )
        for size in preset.effective
    }
    bounds = {
        "retrained": piece("bound_retrained", lambda: _bound(at_size, training, preset, common, preset.sizes)),
        "effective": piece(
            "bound_effective",
            lambda: _bound(at_size(preset.one_for_all), training, preset, common, preset.effective),
        ),
    }
    others = {
        name: piece(name.replace(" ", "_"), lambda make=make: _scored(make(), asked))  # type: ignore[misc]
        for name, make in _others(preset, network, training, seen).items()
    }
    show_progress("")
    return {
        "panel": asdict(panel),
        "recipe": asdict(common.recipe),
        "samples": DRAWS,
        "asked": {"inside": len(asked.x), "outside": len(asked.outside[panel.outside])},
        "training images": len(training[0]),
        "retrained": retrained,
        "effective": effective,
        "bounds": bounds,
        "others": others,
    }


def mcbn(network: nn.Module, x: Tensor, size: int) -> BatchNormPosterior:
    """Return MCBN as published, from images `x` transformed as in training."""
    return bn.MCBN(size, states=STATES, center="batch").fit(network, x, bn.Categorical())


def _plans(panel: Setting, preset: Preset) -> dict[str, Plan]:
    """Return training plans by name; all batch sizes have the paper's learning rate."""

    def plan(size: int, dropout: float | None = None) -> Plan:
        changes: dict[str, Any] = {"batch_size": size, "dropout": dropout, "epochs": preset.epochs[size]}
        return Plan.from_preset(panel.network, panel.data, preset.recipe, learning_rate=0.1, **changes)

    common = preset.one_for_all
    return {f"M{size}": plan(size) for size in preset.sizes} | {f"dropout_M{common}": plan(common, preset.dropout)}


def _others(
    preset: Preset, network: Callable[[str], nn.Module], training: tuple[Tensor, Tensor], seen: Tensor
) -> dict[str, Callable[[], Posterior]]:
    """Return functions for the other posteriors of a network with batch norm, by name."""
    size = preset.one_for_all

    def with_dropout() -> tuple[nn.Module, Posterior]:
        dropped = network(f"dropout_M{size}")
        return dropped, bn.MCDropout().fit(dropped, likelihood=bn.Categorical())

    def both() -> Posterior:
        dropped, posterior = with_dropout()
        return bn.combine(posterior, mcbn(dropped, seen, size))

    def mean_field() -> Posterior:
        method = bn.BayesByBackprop(
            epochs=preset.mean_field_epochs,
            batch_size=size,
            start="trained",
            prior_center="trained",
            compiled="graph",
        )
        return method.fit(network(f"M{size}"), training, bn.Categorical())

    return {
        "dropout": lambda: with_dropout()[1],
        "dropout and MCBN": both,
        "mean field": mean_field,
    }


def _scored(posterior: Posterior, asked: Asked) -> dict[str, Any]:
    return uncertainty_scores(lambda x: posterior.predict(x, bn.MonteCarlo(DRAWS)), asked)  # type: ignore[arg-type, return-value]


def _bound(
    source: Any, training: tuple[Tensor, Tensor], preset: Preset, plan: Plan, sizes: tuple[int, ...]
) -> dict[str, Any]:
    rows = training[0][: preset.bound_rows], training[1][: preset.bound_rows]
    choice = bn.select_batch_size(
        source,
        rows,
        batch_sizes=sizes,
        weight_decay=plan.recipe.weight_decay,
        train_rows=len(training[0]),
        samples=preset.bound_samples,
    )
    return {"chosen": choice.batch_size, "rows": [asdict(row) for row in choice.rows]}
