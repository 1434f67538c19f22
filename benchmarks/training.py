"""Measure how much faster many small networks are trained together than one by one.

    python -m benchmarks.training [--device cuda] [--out [results/training_cpu.json]]

Counts steps of single networks per second, at the size of the MCBN paper's regression benchmark (13 inputs, two hidden
layers of 50 units, batches of 32). `train_stacked` with many networks and `train` with one are measured in turns;
medians are reported. Networks have batch norm, or dropout on the input and after each hidden layer. Needs no data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from bayesnorm.training import train
from experiments.machine import machine
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.stacked_networks import choose_block, standardised_rows

ROWS, INPUTS, BATCH_SIZE, RATE = 324, 13, 32, 0.05
"""The size of a fold of the Boston set."""

SECONDS = 2.0
"""Shortest time of a measurement."""


FAMILIES: dict[str, Callable[[int], nn.Sequential]] = {
    "batch norm": lambda seed: paper_mlp(INPUTS, seed=seed),
    "dropout": lambda seed: paper_dropout_mlp(INPUTS, RATE, seed=seed),
}


def half_mse(f: Tensor, y: Tensor) -> Tensor:
    """Return half the mean squared error, which `train_stacked` minimises."""
    return 0.5 * mse_loss(f, y)


def data(device: str) -> tuple[Tensor, Tensor]:
    """Return simulated inputs and targets."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, INPUTS, generator=generator)
    return x.to(device), torch.sin(x[:, :1]).to(device)


def alone(family: str, device: str, epochs: int) -> float:
    """Return the steps per second of one network in one thread; its operations are too small for more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    network = FAMILIES[family](0).to(device)
    history = train(network, *data(device), loss=half_mse, epochs=epochs, batch_size=BATCH_SIZE, weight_decay=1e-4)
    torch.set_num_threads(threads)
    return epochs * (ROWS // BATCH_SIZE) / history.seconds


def stacked(family: str, device: str, networks: int, epochs: int) -> float:
    """Return the steps of single networks per second; rows, weight decay and seed differ between networks."""
    stack = Stack.from_networks([FAMILIES[family](i).to(device) for i in range(networks)])
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randperm(ROWS, generator=generator) for _ in range(networks)]
    history = train_stacked(
        stack,
        standardised_rows(*data(device), rows),
        epochs=epochs,
        batch_size=BATCH_SIZE,
        weight_decay=torch.logspace(-1, -15, networks).tolist(),
        loss=HalfSquaredError(),
        seeds=[i % 5 for i in range(networks)],
        choose_block=choose_block,
    )
    if device == "cuda":
        torch.cuda.synchronize()
    return history.network_steps / history.seconds


def long_enough(run: Callable[[int], float], networks: int, seconds: float) -> int:
    """Return the number of epochs that takes about this time, from a short run that also warms up."""
    per_second = max(run(2), run(5))
    return max(2, round(seconds * per_second / (networks * (ROWS // BATCH_SIZE))))


def measured(family: str, device: str, networks: int, repeats: int, seconds: float) -> dict:
    """Return one row of the table: the medians of both speeds and of their ratio, measured in turns."""
    one, many = (lambda n: alone(family, device, n)), (lambda n: stacked(family, device, networks, n))
    epochs_one, epochs_many = long_enough(one, 1, seconds), long_enough(many, networks, seconds)
    pairs = [(one(epochs_one), many(epochs_many)) for _ in range(repeats)]
    return {
        "family": family,
        "networks": networks,
        "one by one": round(statistics.median(a for a, _ in pairs)),
        "stacked": round(statistics.median(b for _, b in pairs)),
        "ratio": round(statistics.median(b / a for a, b in pairs), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 10, 75, 375])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="Shortest time of a measurement, in seconds. [default: 2]"
    )
    parser.add_argument("--threads", type=int, help="Threads on a CPU. [default: torch's choice]")
    parser.add_argument(
        "--out", type=Path, nargs="?", const=Path(), help="Write a JSON file. [default: a file in results/]"
    )
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    rows = []
    print(f"{'family':12} {'networks':>8} {'one by one':>11} {'stacked':>9} {'ratio':>7}   (network-steps per second)")
    for family in FAMILIES:
        for networks in options.networks:
            row = measured(family, options.device, networks, options.repeats, options.seconds)
            rows.append(row)
            print(
                f"{family:12} {networks:8} {row['one by one']:11,} {row['stacked']:9,} {row['ratio']:7.1f}", flush=True
            )
    if options.out is not None:
        out = options.out if options.out != Path() else Path("results") / f"training_{options.device}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        made_on = machine(options.device) | {"load before": round(load, 2)}
        made_on["command"] = " ".join(["python -m benchmarks.training", *sys.argv[1:]])
        out.write_text(json.dumps({"machine": made_on, "speed": rows}, indent=1))
        print(f"written: {out}")


if __name__ == "__main__":
    main()
