"""Presets: everything that the documentation shows, or a short test."""

from __future__ import annotations

from dataclasses import dataclass

from .corruptions import CORRUPTIONS, SEVERITIES

BATCH_SIZE = 32
"""M of all posteriors."""


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        depths: Depths of the ResNets.
        corruptions: Corruptions of the images.
        severities: Their severities.
        samples_of_rows: By n, how often n target images are sampled; scores are means over these.
        pseudo_counts: Values of N for the blend.
        scored: Number of scored images.
        samples: Posterior samples per prediction.
        one_class_rows: Values of n for target images of one class only.
        power: By n, the number of batches of each corruption and severity that are tested for drift.
        clean_batches: The largest number of batches of clean images of each size.
        streams: Number of image streams per corruption; there are ten times as many clean ones.
        stream_batches: Batches of 16 images in a stream; a corruption starts half-way.
        simulated_batches: By n, the number of batches of new rows for each of the `simulated_networks` networks of a
            kind.
        simulated_networks: Number of networks of a kind, each with its own training rows.
        simulated_streams: Number of simulated streams.
        simulated_length: Batches in each of them.
        stream_severities: Severities of the streams whose classes are mixed or not.
        stream_rows: Values of n, the number of images in a batch of these streams.
        stream_count: Number of batches of each kind, and four times as many clean ones.
        splits: Number of random splits of a table into rows for training, monitoring, adaptation and scoring.
    """

    depths: tuple[int, ...] = (20, 32)
    corruptions: tuple[str, ...] = tuple(CORRUPTIONS)
    severities: tuple[int, ...] = SEVERITIES
    samples_of_rows: tuple[tuple[int, int], ...] = ((1, 2), (8, 2), (32, 2), (128, 1), (512, 1))
    pseudo_counts: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    scored: int = 1000
    samples: int = 32
    one_class_rows: tuple[int, ...] = (32, 128)
    power: tuple[tuple[int, int], ...] = ((4, 60), (16, 60), (64, 15))
    clean_batches: int = 1000
    streams: int = 4
    stream_batches: int = 60
    simulated_batches: tuple[tuple[int, int], ...] = ((4, 50), (16, 50), (64, 50), (256, 50))
    simulated_networks: int = 20
    simulated_streams: int = 200
    simulated_length: int = 1000
    stream_severities: tuple[int, ...] = (2, 5)
    stream_rows: tuple[int, ...] = (32, 128)
    stream_count: int = 1
    splits: int = 5


PRESETS: dict[str, Preset] = {
    "paper": Preset(),
    "quick": Preset(
        depths=(20,),
        corruptions=("gaussian_noise", "contrast"),
        severities=(3,),
        samples_of_rows=((8, 1), (32, 1)),
        pseudo_counts=(16, 64),
        scored=64,
        samples=4,
        one_class_rows=(32,),
        power=((4, 4), (16, 4)),
        clean_batches=4,
        streams=1,
        stream_batches=4,
        simulated_batches=((4, 20), (16, 20)),
        simulated_networks=1,
        simulated_streams=4,
        simulated_length=20,
        stream_severities=(5,),
        stream_rows=(64,),
        splits=1,
    ),
}
