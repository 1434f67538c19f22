"""Measure the time of `drift` and `adapt` beside one forward pass of the same images.

    python -m benchmarks.shift [--device cpu] [--repeats 30] [--out results/shift_cost.json]

Uses a ResNet-32 with random weights and random images, on one thread of the CPU or on a GPU, so no data are needed.
Calls are measured in turns after two first calls; times_ms are reported. The forward pass is `model(x)` in evaluation
mode without gradients. Results of the other device stay in the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import bayesnorm as bn
from experiments.machine import machine
from experiments.networks import CifarResNet

ROWS = (32, 128)
BATCH_SIZE = 32


def seconds(call: Callable[[], object], device: str) -> float:
    """Return the seconds of a call, until the device has finished."""
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def measure(device: str, repeats: int) -> list[dict]:
    """Return the median milliseconds of a forward pass, of `drift` and of `adapt`, and the ratios to the first."""
    generator = torch.Generator().manual_seed(0)
    network = CifarResNet(32).to(device)
    x = torch.randn(1024, 3, 32, 32, generator=generator).to(device)
    with torch.no_grad():
        network.train()(x[:256])
    posterior = bn.MCBN(BATCH_SIZE, states=64).fit(network.eval(), x, bn.Categorical())
    rows = []
    for count in ROWS:
        new = 1.2 * torch.randn(count, 3, 32, 32, generator=generator).to(device)

        def forward(new: torch.Tensor = new) -> None:
            with torch.no_grad():
                network(new)

        calls = {
            "pass": forward,
            "drift": lambda new=new: bn.drift(posterior, new),
            "adapt": lambda new=new: bn.adapt(posterior, new),
        }
        for call in calls.values():
            call()
            call()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                times[name].append(seconds(call, device))
        for name in ("drift", "adapt"):
            ratio = statistics.median(a / b for a, b in zip(times[name], times["pass"], strict=True))
            times_ms = {key: round(1000 * statistics.median(times[key]), 3) for key in ("pass", name)}
            rows.append(
                {
                    "call": name,
                    "rows": count,
                    "pass_ms": times_ms["pass"],
                    "ms": times_ms[name],
                    "passes": round(ratio, 2),
                }
            )
            print(rows[-1], flush=True)
    return rows


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/shift_cost.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = json.loads(options.out.read_text()) if options.out.exists() else {}
    result[options.device] = {"machine": machine(options.device), "costs": measure(options.device, options.repeats)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
