"""Measure what `calibrate` costs, and what `suggest_layers` returns, beside temperature scaling.

    python -m benchmarks.calibration [--out results/calibration_cost.json]

The CIFAR-10 ResNets of the data folder, MCBN with batch size 64 fitted on 5,000 training images. The first 1,000 test
images choose, the other 1,000 give the NLL. Times are CPU seconds of one thread, the smaller of two.
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

import bayesnorm as bn
from bayesnorm import metrics
from experiments.data import load_cifar10, to_network_input
from experiments.machine import machine
from experiments.networks import load_cifar_resnet

DEPTHS = (20, 32)


def cheapest(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and the smaller CPU time of two calls in seconds."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        result = call()
        seconds.append(time.process_time() - start)
    return result, round(min(seconds), 2)


def measure(depth: int, samples: int | None = None, images: int | None = None) -> dict[str, Any]:
    """Return CPU seconds and test NLL of every way to calibrate the last layer, and the options of `suggest_layers`."""
    train = to_network_input(load_cifar10("train")[0])[:images]
    pixels, labels = load_cifar10("test")
    x, y = to_network_input(pixels), torch.as_tensor(labels).long()
    (x, x_test), (y, y_test) = x[:images].chunk(2), y[:images].chunk(2)
    network = load_cifar_resnet(depth)
    posterior = bn.MCBN(64, states=64).fit(network, train, bn.Categorical())
    last, alone = posterior.at_layers(1), bn.deterministic(network, bn.Categorical())
    calls = {
        "deterministic network, predict": lambda: alone.predict(x),
        "temperature of the deterministic network": lambda: bn.calibrate(alone, x, y),
        "last layer, predict": lambda: last.predict(x),
        "last layer, calibrate": lambda: bn.calibrate(last, x, y, samples=samples),
        "last layer, calibrate(batch_size=True)": lambda: bn.calibrate(last, x, y, batch_size=True, samples=samples),
    }
    rows = []
    for name, call in calls.items():
        result, seconds = cheapest(call)
        calibrated = "predict" not in name
        nll = round(float(metrics.nll(result.predict(x_test), y_test)), 4) if calibrated else None
        rows.append({"call": name, "cpu_seconds": seconds, "test_nll": nll})
        print(depth, rows[-1], flush=True)
    start = time.process_time()
    suggestion = bn.suggest_layers(posterior, x, y, samples=samples or 32)
    seconds = round(time.process_time() - start, 1)
    options = [
        {
            "layers": option.layers,
            "validation_nll": round(option.score, 4),
            "test_nll": round(float(metrics.nll(option.posterior.predict(x_test), y_test)), 4),
            "cost": round(option.cost, 2),
        }
        for option in suggestion.options
    ]
    print(suggestion, flush=True)
    results = {"best": suggestion.best.layers, "cpu_seconds": seconds, "options": options}
    return {"depth": depth, "calls": rows, "suggest_layers": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/calibration_cost.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bn.BayesNormWarning)
        networks = [measure(depth) for depth in DEPTHS]
    options.out.write_text(json.dumps({"machine": machine("cpu"), "networks": networks}, indent=1) + "\n")


if __name__ == "__main__":
    main()
