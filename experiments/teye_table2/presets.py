"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_SIZE = 32
"""M of all posteriors, as in the paper's table."""


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        train_images: The first so many training images are what posteriors are fitted on.
        images: The first so many test images are scored.
        draws: T of MCBN as published goes up to this power of two.
        centred_draws: That of MCBN about the running statistics up to this one.
        other_draws: That of other methods that draw all layers up to this one.
        late_draws: Draws of late layers, by how many of the last layers are drawn.
        states: Batches whose statistics a posterior keeps.
        rank: Directions of `SigmaPoints`.
        trained: Whether networks that were trained here are looked at beside the given one.
    """

    train_images: int = 5000
    images: int = 2000
    draws: int = 128
    centred_draws: int = 64
    other_draws: int = 16
    late_draws: tuple[tuple[int, int], ...] = ((1, 64), (2, 32))
    states: int = 256
    rank: int = 8
    trained: bool = False


PRESETS: dict[str, Preset] = {
    "quick": Preset(
        train_images=1000,
        images=200,
        draws=16,
        centred_draws=16,
        other_draws=8,
        late_draws=((1, 16),),
        states=64,
        rank=4,
    ),
    "given": Preset(),
    "paper": Preset(train_images=50_000, images=10_000, centred_draws=128, other_draws=128, trained=True),
}
