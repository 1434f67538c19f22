"""Measure what fitting costs beside the forward passes of its batches.

    python -m benchmarks.fitting [--states 64] [--repeats 5] [--out results/fitting_cpu.json]

Every fit is compared with as many plain forward passes, `model(x)` in evaluation mode over batches of the same size,
on one thread of the CPU. Both are measured in turns; the medians of the CPU time are reported. Inputs are random, so
no data are needed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import bayesnorm as bn
from experiments.machine import machine
from experiments.networks import CifarResNet

BATCH_SIZE = 32


def segmentation_network(classes: int = 12) -> nn.Module:
    """Return a small segmentation network that works at half of the resolution inside."""

    def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())

    down = [block(3, 16), block(16, 32, stride=2), block(32, 32)]
    return nn.Sequential(*down, nn.Upsample(scale_factor=2), block(32, 16), nn.Conv2d(16, classes, 1))


def cases() -> dict[str, tuple[nn.Module, Tensor]]:
    """Return networks by name, each with the inputs for its fit."""
    images = torch.randn(512, 3, 32, 32)
    return {
        "ResNet-32, 32 x 32": (CifarResNet(32), images),
        "ResNet-56, 32 x 32": (CifarResNet(56), images),
        "segmentation, 12 x 90 x 120 outputs": (segmentation_network(), torch.randn(128, 3, 90, 120)),
    }


def methods(states: int) -> dict[str, bn.MCBN | bn.GaussianBN]:
    """Return the methods by name. GaussianBN reads every input once; MCBN reads random batches."""
    return {f"MCBN, {states} batches": bn.MCBN(BATCH_SIZE, states=states), "GaussianBN": bn.GaussianBN(BATCH_SIZE)}


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(method: bn.MCBN | bn.GaussianBN, network: nn.Module, x: Tensor, repeats: int) -> dict[str, float]:
    """Return the median seconds of a fit and of its forward passes, and the median ratio, measured in turns."""
    done: list[int] = []
    fit = lambda: method.fit(network, x, bn.Categorical(), progress=lambda _, total: done.append(total))  # noqa: E731
    fit()
    batches = [x[torch.randperm(len(x))[: method.batch_size]] for _ in range(done[-1])]

    @torch.no_grad()
    def passes() -> None:
        for batch in batches:
            network(batch)

    passes()
    times = [(seconds(passes), seconds(fit)) for _ in range(repeats)]
    return {
        "passes": len(batches),
        "passes_seconds": statistics.median(a for a, _ in times),
        "fit_seconds": statistics.median(b for _, b in times),
        "ratio": statistics.median(b / a for a, b in times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=64, help="Number of batches of an MCBN fit. [default: 64]")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/fitting_cpu.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    result: dict = {"machine": machine() | {"command": " ".join(["python -m benchmarks.fitting", *sys.argv[1:]])}}
    result["fits"] = []
    for name, (network, x) in cases().items():
        for label, method in methods(options.states).items():
            row = {"network": name, "method": label} | measure(method, network.eval(), x, options.repeats)
            print(
                f"{name:38s} {label:18s} {row['passes']:3d} forward passes {row['passes_seconds']:7.2f} s, "
                f"fit {row['fit_seconds']:7.2f} s, ratio {row['ratio']:.2f}",
                flush=True,
            )
            result["fits"].append(row)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
