"""Measure what pruned channels cost in accuracy, by criterion, on networks with and without projection shortcuts.

    python -m benchmarks.pruning [--out results/pruning_criteria.json]

Two small networks are trained on the 5,000 CIFAR-10 images of the data folder, a plain one and a ResNet with projection
shortcuts. ResNet-20 and ResNet-32, whose shortcuts have no weights, come from the data folder. Nothing is fine-tuned.
1,000 training images prune, 2,000 test images score. About ten CPU-minutes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.compression import prune_channels
from bayesnorm.training import train
from experiments.data import load_cifar10, to_network_input
from experiments.machine import machine
from experiments.networks import load_cifar_resnet

SHARES = (0.7, 0.5)
CRITERIA = ("signal", "statistics", "scale")


class ProjectionBlock(nn.Module):
    """A residual block whose shortcut is a convolution with batch norm."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        first = nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
        self.branch = nn.Sequential(*first, nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, 2, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return (self.branch(x) + self.shortcut(x)).relu()


def plain_network() -> nn.Module:
    """Return three convolutions with batch norm and a linear layer."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


def projection_network() -> nn.Module:
    """Return a small ResNet with projection shortcuts."""
    stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    blocks = ProjectionBlock(16, 32), ProjectionBlock(32, 64), ProjectionBlock(64, 96)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


def trained(make: Callable[[], nn.Module], x: Tensor, y: Tensor) -> nn.Module:
    """Return a network after twelve epochs."""
    torch.manual_seed(0)
    network = make()
    train(network, x, y, loss=nn.functional.cross_entropy, epochs=12, batch_size=100, seed=0)
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of images with the right label."""
    right = [
        int((network(rows).argmax(1) == labels).sum()) for rows, labels in zip(x.split(100), y.split(100), strict=True)
    ]
    return round(sum(right) / len(x), 4)


def measure(name: str, network: nn.Module, x: Tensor, test: tuple[Tensor, Tensor]) -> list[dict[str, Any]]:
    """Return the accuracy of a network before pruning, and after it for all criteria and shares."""
    posterior = bn.MCBN(100, states=32).fit(network, x[:2000], bn.Categorical())
    before, rows = accuracy(network, *test), []
    for share in SHARES:
        for criterion in CRITERIA:
            start = time.process_time()
            small = prune_channels(posterior, x[:1000], multiply_adds=share, criterion=criterion)
            seconds = round(time.process_time() - start, 1)
            after = accuracy(small.network, *test)
            head = [layer for layer in small.network.modules() if isinstance(layer, nn.Linear)][-1]
            results = {"before": before, "after": after, "classifier_inputs": head.in_features, "cpu_seconds": seconds}
            rows.append({"network": name, "share": share, "criterion": criterion, **results})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/pruning_criteria.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", bn.BayesNormWarning)
    (x, y), test = (
        (to_network_input(pixels), torch.as_tensor(labels).long())
        for pixels, labels in (load_cifar10("train"), load_cifar10("test"))
    )
    networks = {
        "plain, 3 convolutions": lambda: trained(plain_network, x, y),
        "ResNet, projection shortcuts": lambda: trained(projection_network, x, y),
        "ResNet-20": lambda: load_cifar_resnet(20),
        "ResNet-32": lambda: load_cifar_resnet(32),
    }
    rows = [row for name, make in networks.items() for row in measure(name, make(), x, test)]
    options.out.write_text(json.dumps({"machine": machine("cpu"), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
