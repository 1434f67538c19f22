"""How much to measure."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_SIZE = 32
"""M of all posteriors, as in the paper's table."""


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        train_images: Number of training images for posteriors, the first ones.
        images: Number of scored test images, the first ones.
        samples: Largest T of MCBN as published, a power of two.
        centred_samples: Largest T of MCBN centred on the running statistics.
        other_samples: Largest T of other methods that sample all layers.
        late_samples: Samples of late layers, by the number of sampled last layers.
        states: Number of batches whose statistics a posterior keeps.
        rank: Directions of `SigmaPoints`.
    """

    train_images: int = 5000
    images: int = 2000
    samples: int = 128
    centred_samples: int = 64
    other_samples: int = 16
    late_samples: tuple[tuple[int, int], ...] = ((1, 64), (2, 32))
    states: int = 256
    rank: int = 8


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
    "paper": Preset(train_images=50_000, images=10_000, centred_samples=128, other_samples=128),
}
