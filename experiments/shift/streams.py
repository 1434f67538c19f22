"""Adapt to batches of streams with all classes, with some and with one, and estimate errors without labels.

`measure_streams` adapts to each batch and scores it by itself. Its batches come from the second 1,000 test images;
temperatures and the thresholds of the estimated errors come from the clean first 1,000.
`stream_order` and `stream_sequence` build the streams whose batches follow one another, for methods that adapt online.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.errors import BayesNormWarning
from bayesnorm.posterior import Posterior

from .blending import BlendedNetwork
from .networks import CLEAN, TARGETS, fitted, network_input, test_images
from .presets import Preset

NONE, BATCH, STATISTICS, ADAPT = "no adaptation", "batch norm by the batch", "adapt, classes ignored", "adapt"
MIXED, DIRICHLET, SORTED = "mixed", "Dirichlet(0.3)", "one class"
CLASSES = 10

ORDERS = (MIXED, "Dirichlet(1)", DIRICHLET, "Dirichlet(0.1)", "sorted")
"""The orders of images in `stream_order`."""
SLOT = 64
"""The least number of consecutive images with the same class mix in a Dirichlet stream."""

Row = dict[str, Any]


def measure_streams(preset: Preset, depth: int, corruption: str, device: str, folder: Path) -> list[Row]:
    """Return one row for each batch: the error of every method, and the estimated errors before and after adapting."""
    state = fitted(depth, device, folder)
    labels = torch.as_tensor(test_images()[1])
    without_classes = dataclasses.replace(state.posterior, class_statistics=None)
    blended = BlendedNetwork(state.network)
    rows: list[Row] = []
    for severity in (0,) if corruption == CLEAN else preset.stream_severities:
        images = network_input(corruption, severity, device)
        for size, stream, chosen in stream_batches(labels, preset, clean=corruption == CLEAN):
            x, y = images[chosen.to(device)], labels[chosen]
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore", BayesNormWarning)
                adapted = bn.adapt(state.posterior, x)
                errors = {
                    NONE: error(state.network(x), y),
                    BATCH: error(blended.take(x, 0)(x), y),
                    STATISTICS: network_error(bn.adapt(without_classes, x), x, y),
                    ADAPT: network_error(adapted, x, y),
                }
                drift = bn.drift(state.posterior, x)
            estimate = drift.expected_error
            assert estimate is not None
            head = {"network": f"ResNet-{depth}", "corruption": corruption, "severity": severity}
            rows.append(
                {
                    **head,
                    "rows": size,
                    "stream": stream,
                    "errors": errors,
                    "before": dataclasses.astuple(estimate.before),
                    "after": dataclasses.astuple(estimate.after),
                    "adapted": bool(adapted.adaptation.strength.any()),
                    "p_value": drift.p_value,
                    "cause": drift.cause,
                }
            )
    return rows


def stream_batches(labels: Tensor, preset: Preset, clean: bool) -> Iterator[tuple[int, str, Tensor]]:
    """Return n, the kind of stream, and the image indices of every batch."""
    random = np.random.default_rng(0)
    by_class = [(TARGETS + (labels[TARGETS:] == label).nonzero().squeeze(1)).numpy() for label in range(CLASSES)]
    for size in preset.stream_rows:
        for number in range(preset.stream_count * (4 if clean else 1)):
            yield size, MIXED, TARGETS + torch.from_numpy(random.permutation(len(labels) - TARGETS)[:size])
            counts = random.multinomial(size, random.dirichlet(np.full(CLASSES, 0.3)))
            parts = [
                random.choice(images, count, replace=count > len(images))
                for images, count in zip(by_class, counts, strict=True)
            ]
            yield size, DIRICHLET, torch.from_numpy(np.concatenate(parts))
            of_class = by_class[(number + len(by_class) * size) % CLASSES]
            yield size, SORTED, torch.from_numpy(random.permutation(of_class)[:size])


@dataclass(frozen=True)
class Segment:
    """A part of a stream with one corruption: the image indices of its batches, in their order."""

    corruption: str
    severity: int
    batches: tuple[Tensor, ...]


def stream_order(order: str, labels: Tensor, images: Tensor, length: int, size: int, seed: int) -> tuple[Tensor, ...]:
    """Return the image indices of the batches of a stream, from its first image to its last.

    No image occurs twice before all others of its kind have occurred once: of all kinds in the mixed stream, of its
    class in the others.

    Args:
        order: One of `ORDERS`. A Dirichlet stream has a new class mix after every `SLOT` images, or after every batch
            if that is larger. The sorted stream shows one class after the other, as many images of each.
        labels: The classes of all images.
        images: The indices of the images to choose from.
        length: Number of images in the stream.
        size: Number of images in a batch; the last batch may have fewer.
        seed: Seed of the random choices.
    """
    random = np.random.default_rng(seed)
    if order == MIXED:
        chosen = _cycled(images.numpy(), length, random)
    else:
        if order == "sorted":
            classes = np.repeat(random.permutation(CLASSES), -(-length // CLASSES))[:length]
        else:
            concentration = float(order.removeprefix("Dirichlet(").removesuffix(")"))
            slot = max(SLOT, size)
            mixes = random.dirichlet(np.full(CLASSES, concentration), -(-length // slot))
            classes = np.concatenate([random.choice(CLASSES, slot, p=mix) for mix in mixes])[:length]
        chosen = np.empty(length, dtype=np.int64)
        for label in range(CLASSES):
            places = np.flatnonzero(classes == label)
            chosen[places] = _cycled(images[labels[images] == label].numpy(), len(places), random)
    return torch.from_numpy(chosen).split(size)


def stream_sequence(
    parts: Sequence[tuple[str, int]], order: str, labels: Tensor, images: Tensor, length: int, size: int, seed: int
) -> list[Segment]:
    """Return a stream with one corruption after the other.

    Args:
        parts: The corruption and the severity of each part; `networks.CLEAN` and 0 for images as they are.
        order, labels, images, size: See `stream_order`.
        length: Number of images in each part.
        seed: Seed of the random choices; the parts differ.
    """
    return [
        Segment(corruption, severity, stream_order(order, labels, images, length, size, seed + 1000 * number))
        for number, (corruption, severity) in enumerate(parts)
    ]


def _cycled(values: np.ndarray, length: int, random: np.random.Generator) -> np.ndarray:
    """Return so many values in random order, every value once before any occurs again."""
    rounds = [random.permutation(values) for _ in range(-(-length // len(values)))]
    return np.concatenate([*rounds, values[:0]])[:length]


def network_error(posterior: Posterior, x: Tensor, y: Tensor) -> float:
    """Return the error of the network at the centre of a posterior."""
    return error(bn.adapted_network(posterior).eval()(x), y)


def error(output: Tensor, y: Tensor) -> float:
    """Return the share of wrong answers."""
    return round(float((output.argmax(1).cpu() != y).double().mean()), 5)


def stream_means(rows: list[Row]) -> list[Row]:
    """Return means over batches, for every network, n, kind of stream, and clean or corrupted images.

    `before` and `after` are the mean absolute errors of the estimates; `inside` the share of intervals that contain the
    error.
    """
    means: list[Row] = []
    names = ("network", "rows", "stream")
    for key in dict.fromkeys((*(row[name] for name in names), row["corruption"] == CLEAN) for row in rows):
        part = [row for row in rows if (*(row[name] for name in names), row["corruption"] == CLEAN) == key]
        mean: Row = {**dict(zip(names, key, strict=False)), "clean": key[-1], "batches": len(part)}
        mean["errors"] = {name: float(np.mean([row["errors"][name] for row in part])) for name in part[0]["errors"]}
        for name, method in (("before", NONE), ("after", ADAPT)):
            truth = np.array([row["errors"][method] for row in part])
            value, low, high = np.array([row[name] for row in part]).T
            mean[name] = float(np.abs(value - truth).mean())
            mean[f"{name}_bias"] = float((value - truth).mean())
            mean[f"{name}_inside"] = float(((low <= truth) & (truth <= high)).mean())
        mean["adapted"] = float(np.mean([row["adapted"] for row in part]))
        means.append({name: round(value, 4) if isinstance(value, float) else value for name, value in mean.items()})
        means[-1]["errors"] = {name: round(value, 4) for name, value in mean["errors"].items()}
    return means


def streams_text(means: list[Row]) -> str:
    """Return the means as a text table."""
    head = f"{'network':10s} {'n':>4s} {'images':10s} {'stream':15s}"
    head += "".join(f" {name[:13]:>13s}" for name in (NONE, BATCH, STATISTICS, ADAPT))
    lines = [head + f" {'adapted':>8s} {'MAE before':>11s} {'MAE after':>10s}"]
    for row in means:
        line = (
            f"{row['network']:10s} {row['rows']:4d} {'clean' if row['clean'] else 'corrupted':10s} {row['stream']:15s}"
        )
        line += "".join(f" {row['errors'][name]:13.3f}" for name in (NONE, BATCH, STATISTICS, ADAPT))
        lines.append(line + f" {row['adapted']:8.0%} {row['before']:11.3f} {row['after']:10.3f}")
    return "\n".join(lines)
