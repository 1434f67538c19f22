"""Measure the time of `drift`, `adapt` and `AdaptiveStream` beside one forward pass of the same images.

    python -m benchmarks.shift [--device cpu] [--repeats 30] [--out results/shift_cost.json]

Uses a ResNet-32 with random weights, a fitted last layer and random images of ten classes, on one thread of the CPU or
on a GPU, so no data are needed. `adapt` depends on the classes: it is measured for shifted images of all classes and of
one. Every call sees several batches in turn, because the number of forward passes depends on chance. A stream is
measured while the shift stays the same. Calls are measured in turns after two first calls; medians are reported. On the
CPU they are CPU times, which other processes disturb less. The forward pass is `model(x)` in evaluation mode without
gradients. Results of the other device stay in the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import bayesnorm as bn
from bayesnorm.posterior import Posterior
from experiments.machine import machine
from experiments.networks import CifarResNet

ROWS = (32, 128)
BATCH_SIZE = 32
CLASSES = 10
BATCHES, FIRST_CALLS = 5, 2


def seconds(call: Callable[[], object], device: str) -> float:
    """Return the seconds of a call: on a GPU until it has finished, on the CPU those of this process alone."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    _wait(device)
    start = clock()
    call()
    _wait(device)
    return clock() - start


def measure(device: str, repeats: int) -> list[dict]:
    """Return the median milliseconds of a forward pass and of every call, and the ratios to the first."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = CifarResNet(32)
    labels = torch.arange(1024) % CLASSES
    x = images(labels, seed=0)
    fit_head(network, x, labels)
    network.to(device).eval()
    posterior = bn.MCBN(BATCH_SIZE, states=64).fit(network, x.to(device), bn.Categorical())
    rows = []
    for count in ROWS:
        mixed, single = (
            [(0.7 * images(kinds, seed) + 0.4).to(device) for seed in range(1, 1 + BATCHES)]
            for kinds in (torch.arange(count) % CLASSES, torch.zeros(count, dtype=torch.long))
        )
        stream = bn.shift.AdaptiveStream(posterior, window=count)
        stream.update(mixed[0])
        calls: dict[str, Callable[[torch.Tensor], object]] = {
            "pass": partial(forward, network),
            "drift": partial(bn.drift, posterior),
            "drift, expected error": partial(expected_error, posterior),
            "drift, expected error, adapted": partial(estimate_and_adapt, posterior),
            "adapt": partial(bn.adapt, posterior),
            "adapt, one class": partial(bn.adapt, posterior),
            "AdaptiveStream.update": stream.update,
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(FIRST_CALLS + repeats):
            for name, call in calls.items():
                x = (single if name == "adapt, one class" else mixed)[number % BATCHES]
                times[name].append(seconds(partial(call, x), device))
        times = {name: values[FIRST_CALLS:] for name, values in times.items()}
        for name in list(calls)[1:]:
            ratio = statistics.median(a / b for a, b in zip(times[name], times["pass"], strict=True))
            times_ms = {key: round(1000 * statistics.median(times[key]), 3) for key in ("pass", name)}
            row = {"call": name, "rows": count, "pass_ms": times_ms["pass"], "ms": times_ms[name]}
            rows.append({**row, "passes": round(ratio, 2)})
            print(rows[-1], flush=True)
    return rows


def forward(network: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Run the network as it is."""
    with torch.no_grad():
        return network(x)


def estimate_and_adapt(posterior: Posterior, x: torch.Tensor) -> Posterior:
    """Test for drift, estimate the error and adapt."""
    result = bn.drift(posterior, x)
    _ = result.expected_error
    return result.adapted()


def expected_error(posterior: Posterior, x: torch.Tensor) -> object:
    """Test for drift and estimate the error."""
    return bn.drift(posterior, x).expected_error


def images(labels: torch.Tensor, seed: int) -> torch.Tensor:
    """Return images with a pattern for each class, in noise."""
    patterns = torch.randn(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(7))
    noise = torch.randn(len(labels), 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(patterns, 32)[labels] + noise


def fit_head(network: CifarResNet, x: torch.Tensor, labels: torch.Tensor) -> None:
    """Give a network with random weights the last layer that predicts the classes best, and running statistics."""
    features: list[torch.Tensor] = []
    hook = network.linear.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    with torch.no_grad():
        network.train()(x[:256])
        network.eval()(x)
        hook.remove()
        inputs = torch.cat([features[-1], torch.ones(len(x), 1)], 1)
        solution = torch.linalg.lstsq(inputs, 20 * torch.nn.functional.one_hot(labels, CLASSES).float()).solution
        network.linear.weight.copy_(solution[:-1].T)
        network.linear.bias.copy_(solution[-1])


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
