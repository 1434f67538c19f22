"""Presets, and the names of the compared networks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ..image_networks.recipes import Recipe
from ..image_networks.training import Plan
from ..options import Size

CRITERIA = ("signal", "statistics", "scale")
WHOLE, SOFTMAX, INT8 = "none", "none, softmax", "int8, softmax"
LABELS, TEACHER = "labels", "whole network"
OUTSIDE = "svhn"


@dataclass(frozen=True)
class Way:
    """How a smaller network is fine-tuned.

    Args:
        learning_rate: The highest learning rate.
        temperature: Temperature of the distillation from the original network; None to use labels.
        batch_size: Images per step.
        weight_decay: On kernels and matrices.
        hints: Weight of the loss between the outputs of stages and those of the original network, in distillation.
        blocks: Whether that loss uses the outputs of all blocks, not only of stages.
    """

    learning_rate: float
    temperature: float | None = None
    batch_size: int = 128
    weight_decay: float = 5e-4
    hints: float = 0.0
    blocks: bool = False

    @property
    def tuned_by(self) -> str:
        """Return the name of the targets: labels or the original network."""
        return LABELS if self.temperature is None else TEACHER


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        depth: Depth of the ResNet.
        shares: Fractions of multiply-adds that are kept.
        images: Training images; None for all.
        asked: Test images of each kind; None for all.
        states: Number of batches whose statistics are kept, and of samples.
        ways: Fine-tuning settings to choose from.
        epochs: Epochs of fine-tuning.
        chosen_at: The fraction at which the settings are chosen.
    """

    depth: int
    shares: tuple[float, ...]
    images: int | None
    asked: int | None
    states: int
    ways: tuple[Way, ...]
    epochs: int = 2
    chosen_at: float = 0.5

    @property
    def plan(self) -> Plan:
        """Return how images are loaded and transformed."""
        recipe = Recipe(self.epochs, images=self.images, test_images=self.asked)
        return replace(Plan.from_preset(f"resnet{self.depth}"), recipe=recipe)

    @property
    def told(self) -> dict[str, Any]:
        """Return the settings that determine a result; other fine-tuning settings do not change existing results."""
        return {name: value for name, value in asdict(self).items() if name not in ("ways", "shares")}


PRESETS = {
    Size.quick: Preset(20, (0.75, 0.5), images=1000, asked=200, states=8, ways=(Way(0.02), Way(0.02, temperature=4))),
    Size.paper: Preset(
        32,
        (0.9, 0.75, 0.6, 0.5, 0.4, 0.3),
        images=None,
        asked=5000,
        states=32,
        ways=(
            *(Way(rate) for rate in (0.01, 0.02, 0.05)),
            *(Way(rate, temperature=4) for rate in (0.002, 0.005, 0.01)),
            *(Way(0.005, temperature, weight_decay=0) for temperature in (2, 4)),
            *(Way(rate, 4, 64, weight_decay=0) for rate in (0.002, 0.005)),
            *(Way(rate, 4, weight_decay=0, hints=hints) for rate in (0.005, 0.01, 0.02) for hints in (50, 200)),
            *(Way(rate, 4, 64, weight_decay=0, hints=200) for rate in (0.005, 0.01)),
            *(
                Way(rate, 4, weight_decay=0, hints=hints, blocks=True)
                for rate in (0.005, 0.01, 0.02)
                for hints in (10, 50)
            ),
            *(Way(rate, 4, 64, weight_decay=0, hints=50, blocks=True) for rate in (0.005, 0.01)),
        ),
    ),
}
