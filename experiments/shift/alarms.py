"""Measure how often `drift` and `DriftMonitor` raise an alarm on clean and corrupted test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.shift import LEVEL, DriftMonitor

from ..data import load_cifar10, to_network_input
from .networks import CLEAN, fitted, network_input
from .presets import Preset

CLEAN_SIZES = (4, 16, 64, 256)
STREAM_ROWS, STREAM_SEVERITY = 16, 3
"""Images per batch of a stream, and the severity of the corruption that starts half-way."""

Row = dict[str, Any]


def measure_alarms(preset: Preset, depth: int, corruption: str, device: str, folder: Path) -> list[Row]:
    """Count alarms at level 0.05 over disjoint batches of test images, at all severities, by batch size."""
    posterior = fitted(depth, device, folder).posterior
    rows = []
    for severity in (0,) if corruption == CLEAN else preset.severities:
        x = network_input(corruption, severity, device)
        for count, most in sizes_and_batches(preset, corruption):
            batches = disjoint(x, count, most)
            p_values = [bn.drift(posterior, batch).p_value for batch in batches]
            head = {"network": f"ResNet-{depth}", "corruption": corruption, "severity": severity, "rows": count}
            rows.append({**head, "batches": len(p_values), "alarms": sum(p < LEVEL for p in p_values)})
    return rows


def measure_false_alarms(preset: Preset, depth: int, _corruption: str, device: str, folder: Path) -> list[Row]:
    """Count alarms at level 0.05 over disjoint batches of all clean test images of the data folder, by batch size."""
    posterior = fitted(depth, device, folder).posterior
    images = to_network_input(load_cifar10("test")[0])
    rows = []
    for count in CLEAN_SIZES:
        p_values = [
            bn.drift(posterior, batch.to(device)).p_value for batch in disjoint(images, count, preset.clean_batches)
        ]
        alarms = sum(p < LEVEL for p in p_values)
        rows.append({"network": f"ResNet-{depth}", "rows": count, "batches": len(p_values), "alarms": alarms})
    return rows


def false_alarms_text(rows: list[Row]) -> str:
    """Return the rate of alarms with its binomial standard error, one line for each network and batch size."""
    lines = [f"{'network':10s} {'n':>4s} {'batches':>8s} {'alarms':>7s}"]
    for row in rows:
        rate = row["alarms"] / row["batches"]
        error = (LEVEL * (1 - LEVEL) / row["batches"]) ** 0.5
        lines.append(f"{row['network']:10s} {row['rows']:4d} {row['batches']:8d} {rate:7.3f} ± {error:.3f}")
    return "\n".join(lines)


def sizes_and_batches(preset: Preset, corruption: str) -> list[tuple[int, int | None]]:
    """Return the batch sizes to test, and the number of batches of each; None for all that are available."""
    return [(count, None) for count in CLEAN_SIZES] if corruption == CLEAN else list(preset.power)


def disjoint(x: Tensor, count: int, most: int | None) -> list[Tensor]:
    """Return disjoint batches of a size, in a fixed random order."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    return [x[part] for part in order.split(count) if len(part) == count][:most]


def watch_images(preset: Preset, depth: int, corruption: str, device: str, folder: Path) -> list[Row]:
    """Monitor streams of test images that become corrupted half-way, or, for "clean", do not change.

    A stream is a random order of the test images. Streams share images, so they are not independent.
    """
    posterior = fitted(depth, device, folder).posterior
    clean = network_input(CLEAN, 0, device)
    later = network_input(corruption, STREAM_SEVERITY, device)
    rows = []
    for seed in range(preset.streams * (10 if corruption == CLEAN else 1)):
        order = torch.randperm(len(clean), generator=torch.Generator().manual_seed(seed + 1)).to(device)
        monitor, change = DriftMonitor(posterior, LEVEL, seed), preset.stream_batches // 2
        for number, part in enumerate(order.split(STREAM_ROWS)[: preset.stream_batches]):
            if monitor.update((later if number >= change else clean)[part]).alarm:
                break
        head = {"network": f"ResNet-{depth}", "corruption": corruption, "stream": seed}
        rows.append({**head, "change": None if corruption == CLEAN else change, "alarm": monitor.alarm})
    return rows
