"""Measure false alarms of `drift` and `DriftMonitor` on unlimited new rows from the training distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.shift import LEVEL, DriftMonitor

from .presets import BATCH_SIZE, Preset

TRAINING_ROWS = 4096
COLUMNS = 13
STREAM_ROWS = 16

Row = dict[str, Any]
Draw = Callable[[int], Tensor]
"""Returns so many new rows."""


class DenseResidual(nn.Module):
    """Fifty dense layers with batch norm and residual connections from the second layer on."""

    def __init__(self, layers: int = 50, width: int = 32) -> None:
        super().__init__()
        sizes = [COLUMNS, *[width] * (layers - 1)]
        self.dense = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in sizes)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norms[0](self.dense[0](x)))
        for dense, norm in list(zip(self.dense, self.norms, strict=True))[1:]:
            h = h + 0.3 * torch.relu(norm(dense(h)))
        result: Tensor = self.head(h)
        return result


def table_network(hidden: tuple[int, ...] = (50, 50)) -> nn.Module:
    """Return dense layers with batch norm."""
    layers: list[nn.Module] = []
    for size, width in zip((COLUMNS, *hidden), hidden, strict=False):
        layers += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], 1))


def convolutional(layers: int = 50, width: int = 8) -> nn.Module:
    """Return convolutions with batch norm, two of which halve the image."""
    parts: list[nn.Module] = []
    for number in range(layers):
        stride = 2 if number in (10, 25) else 1
        parts += [nn.Conv2d(width if number else 3, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "table, 2 layers of 50": table_network,
    "table, skewed columns": table_network,
    "dense residual, 50 layers": DenseResidual,
    "convolutional, 50 layers": convolutional,
}
TINY = (8,)


def measure_simulated(preset: Preset, kind: str, seed: int) -> list[Row]:
    """Count alarms at level 0.05 over batches of new rows, for one network with its own training rows."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        draw = _rows_for(kind)
        posterior = _fitted(NETWORKS[kind](), draw, seed)
        rows = []
        for count, batches in preset.simulated_batches:
            alarms = sum(bn.drift(posterior, draw(count)).p_value < LEVEL for _ in range(batches))
            rows.append({"network": kind, "seed": seed, "rows": count, "batches": batches, "alarms": alarms})
    return rows


def watch_simulated(preset: Preset, seed: int) -> list[Row]:
    """Monitor one stream of new rows with its own tiny network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        draw = _rows_for("tiny")
        monitor = DriftMonitor(_fitted(table_network(TINY), draw, seed), LEVEL, seed)
        for _ in range(preset.simulated_length):
            if monitor.update(draw(STREAM_ROWS)).alarm:
                break
    return [{"network": "tiny", "stream": seed, "length": preset.simulated_length, "alarm": monitor.alarm}]


def _rows_for(kind: str) -> Draw:
    """Return a function that samples rows: correlated normal columns (three transformed), or small smooth images."""
    if kind.startswith("convolutional"):

        def images(count: int) -> Tensor:
            return F.avg_pool2d(torch.randn(count, 3, 8, 8) + torch.randn(count, 3, 1, 1), 3, 1, 1)

        return images
    mix = 0.5 * torch.randn(COLUMNS, COLUMNS) + torch.eye(COLUMNS)

    def columns(count: int) -> Tensor:
        x = torch.randn(count, COLUMNS) @ mix
        if "skewed" in kind:
            x = torch.cat([x[:, :1].exp(), (x[:, 1:2] > 0.5).float(), x[:, 2:3] ** 3, x[:, 3:]], 1)
        return x

    std, mean = torch.std_mean(columns(TRAINING_ROWS), 0)
    return lambda count: (columns(count) - mean) / std


def _fitted(network: nn.Module, draw: Draw, seed: int) -> bn.Posterior:
    """Return MCBN of a network with random weights and the running statistics of its training rows."""
    x = draw(TRAINING_ROWS)
    network.train()
    with torch.no_grad():
        for batch in x.split(128):
            network(batch)
    return bn.MCBN(BATCH_SIZE).fit(network.eval(), x, bn.Gaussian(1.0), seed=seed)
