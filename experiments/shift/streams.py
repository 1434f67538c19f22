"""Adapt to batches of streams with all classes, with some and with one, and estimate errors without labels.

Each batch is adapted to and scored by itself. Batches come from the second 1,000 test images; temperatures and the
thresholds of the estimated errors come from the clean first 1,000.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
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
                random.choice(of, count, replace=count > len(of)) for of, count in zip(by_class, counts, strict=True)
            ]
            yield size, DIRICHLET, torch.from_numpy(np.concatenate(parts))
            of_class = by_class[(number + len(by_class) * size) % CLASSES]
            yield size, SORTED, torch.from_numpy(random.permutation(of_class)[:size])


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
