"""How much is measured, and the names of what is compared."""

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
        learning_rate: The highest one.
        temperature: At which the whole network teaches it; None where labels do.
        batch_size: Images per step.
        weight_decay: On kernels and matrices.
        hints: How much the outputs of stages count, which are to be the whole network's, where that teaches.
        blocks: Whether the outputs of all blocks count so, not those of stages alone.
    """

    learning_rate: float
    temperature: float | None = None
    batch_size: int = 128
    weight_decay: float = 5e-4
    hints: float = 0.0
    blocks: bool = False

    @property
    def tuned_by(self) -> str:
        """Who tells the smaller network what is right."""
        return LABELS if self.temperature is None else TEACHER


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        depth: The ResNet's.
        shares: Shares of multiply-adds that stay.
        images: Training images; None for all.
        asked: Test images of each kind; None for all.
        states: Batches whose statistics are kept, and samples.
        ways: How networks may be fine-tuned.
        epochs: Of fine-tuning.
        chosen_at: The share at which one of the ways is chosen.
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
        """How images are loaded and transformed."""
        recipe = Recipe(self.epochs, images=self.images, test_images=self.asked)
        return replace(Plan.of(f"resnet{self.depth}"), recipe=recipe)

    @property
    def told(self) -> dict[str, Any]:
        """What decides a piece: other ways do not change those that are there."""
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
