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
        samples: T of MCBN as published goes up to this power of two.
        centred_samples: That of MCBN about the running statistics up to this one.
        other_samples: That of other methods that draw all layers up to this one.
        late_samples: Samples of late layers, by how many of the last layers are drawn.
        states: Batches whose statistics a posterior keeps.
        rank: Directions of `SigmaPoints`.
        trained: Whether networks that were trained here are looked at beside the given one.
    """

    train_images: int = 5000
    images: int = 2000
    samples: int = 128
    centred_samples: int = 64
    other_samples: int = 16
    late_samples: tuple[tuple[int, int], ...] = ((1, 64), (2, 32))
    states: int = 256
    rank: int = 8
    trained: bool = False


PRESETS: dict[str, Preset] = {
    "quick": Preset(
        train_images=1000,
        images=200,
        samples=16,
        centred_samples=16,
        other_samples=8,
        late_samples=((1, 16),),
        states=64,
        rank=4,
    ),
    "given": Preset(),
    "paper": Preset(train_images=50_000, images=10_000, centred_samples=128, other_samples=128, trained=True),
}
