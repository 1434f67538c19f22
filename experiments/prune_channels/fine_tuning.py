"""Prune a network, and fine-tune the smaller network."""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm import BayesNormWarning
from bayesnorm.compression import Compressed, prune_channels
from bayesnorm.posterior import BatchNormPosterior
from bayesnorm.training import Teacher

from ..evidence import show_progress
from ..image_networks.training import Plan, score as score_network
from ..pieces import measured_once
from .presets import Preset, Way

BATCH_SIZE = 32


@dataclass(frozen=True)
class Whole:
    """The original network, and the training images for pruning.

    Args:
        network: The network.
        plan: How its images are transformed.
        states: Number of batches whose statistics are kept.
        pixels, labels: Training images, as bytes, and their classes.
    """

    network: nn.Module
    plan: Plan
    states: int
    pixels: Tensor
    labels: Tensor

    @cached_property
    def x(self) -> Tensor:
        """Return the images as network input."""
        return self.plan.transform().scaled(self.pixels)

    def posterior(self, network: nn.Module) -> BatchNormPosterior:
        """Return MCBN of a network."""
        return bn.MCBN(BATCH_SIZE, states=self.states).fit(network, self.x, bn.Categorical())

    def pruned(self, share: float, criterion: Any) -> Compressed:
        """Return a network with a fraction of the multiply-adds."""
        posterior = self.posterior(self.network)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BayesNormWarning)  # predictions change before fine-tuning
            return prune_channels(posterior, self.x[:10_000], multiply_adds=share, criterion=criterion)

    def fine_tuned(self, network: nn.Module, way: Way) -> nn.Module:
        """Return a pruned network after fine-tuning."""
        changed = replace(
            self.plan.recipe,
            batch_size=way.batch_size,
            learning_rate=way.learning_rate,
            weight_decay=way.weight_decay,
        )
        teacher = None
        if way.temperature is not None:
            hinted = _hinted(self.network, network, way.blocks) if way.hints else ()
            teacher = Teacher(self.network, self.plan.transform(), way.temperature, hinted, way.hints)
        replace(self.plan, recipe=changed).train(network, self.pixels, self.labels, teacher, compiled="graph")
        return network


def _hinted(whole: nn.Module, small: nn.Module, blocks: bool) -> list[str]:
    """Return names of the stages or blocks of a ResNet whose outputs have the same width after pruning."""
    stages = [name for name, stage in whole.named_children() if isinstance(stage, nn.Sequential)]
    results = {name: [f"{name}.{block}" for block, _ in whole.get_submodule(name).named_children()] for name in stages}
    if blocks:
        names = [block for rows in results.values() for block in rows]
        return [name for name in names if _width(whole, name) == _width(small, name)]
    return [stage for stage, rows in results.items() if _width(whole, rows[-1]) == _width(small, rows[-1])]


def _width(network: nn.Module, block: str) -> int:
    """Return how many channels a block adds to the residual stream: those of its last kernel."""
    return [len(value) for value in network.get_submodule(block).parameters() if value.dim() == 4][-1]


def scored_ways(whole: Whole, preset: Preset, stored: Path) -> list[dict[str, Any]]:
    """Return the score of each setting on every tenth training image, which is held out; the most accurate first."""
    held = torch.arange(len(whole.pixels), device=whole.pixels.device) % 10 == 9
    rest = replace(whole, pixels=whole.pixels[~held], labels=whole.labels[~held])

    @cache
    def pruned() -> nn.Module:
        return rest.pruned(preset.chosen_at, "statistics").network

    def scored(way: Way) -> dict[str, Any]:
        tuned = rest.fine_tuned(copy.deepcopy(pruned()), way)
        return asdict(way) | score_network(tuned, whole.pixels[held], whole.labels[held], whole.plan)

    rows: list[dict[str, Any]] = []
    for way in preset.ways:
        show_progress(f"ResNet-{preset.depth}: {way}")
        settings = {"preset": preset.told, "way": asdict(way)}
        name = "_".join(str(value) for value in asdict(way).values())
        rows.append(measured_once(stored / "ways" / f"{name}.json", settings, partial(scored, way)))
    return sorted(rows, key=lambda row: (-row["accuracy"], row["nll"]))
