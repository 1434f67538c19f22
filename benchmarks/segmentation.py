"""Measure time and memory of predictions and fits for networks that predict every pixel of an image.

    python -m benchmarks.segmentation [--device cuda] [--only speed] [--out results/segmentation_cpu.json]

Networks have random weights and 12 classes, and images are random with 360 x 480 pixels, so no data are needed.
Memory (on a CPU): the peak that a prediction adds to a new process that holds the network and its inputs, for four
images, and for one image of 1,024 x 2,048 pixels, whole and in tiles.
Time: 16 samples for one image, in seconds and as a ratio to one forward pass, measured in turns; medians are reported.
On a CPU it is CPU time on one thread. On a GPU it is measured compiled, too, against the eager and the compiled
network.
Fit (on a CPU): MCBN and GaussianBN on batches of four images, as a ratio to their forward passes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesnorm as bn
from experiments.machine import machine
from experiments.measuring import with_added_mib
from experiments.networks import SegNet, UNet

from . import fitting

CLASSES, SIZE, LARGE = 12, (360, 480), (1024, 2048)
NETWORKS: dict[str, Callable[[int], nn.Module]] = {"SegNet": SegNet, "UNet": UNet}


def fitted(name: str, device: str = "cpu") -> tuple[nn.Module, bn.Posterior]:
    """Return a network and its posterior, fitted on small images."""
    torch.manual_seed(0)
    network = NETWORKS[name](CLASSES).eval().to(device)
    images = torch.randn(16, 3, 48, 64)
    return network, bn.MCBN(batch_size=8, states=64).fit(network, images, bn.Categorical())


def added_mib(name: str, rows: int, size: tuple[int, int], samples: int, options: dict[str, Any]) -> float:
    """Return the memory that a prediction adds to this process; with 0 samples, that of one forward pass."""
    torch.set_num_threads(1)
    network, posterior = fitted(name)
    x = torch.randn(rows, 3, *size)

    @torch.no_grad()
    def run() -> object:
        return posterior.predict(x, bn.MonteCarlo(samples), **options) if samples else network(x)

    return with_added_mib(run)[1]


def memory() -> list[dict]:
    """Measure memory, each time in a new process."""
    summary: dict[str, Any] = {"keep": "summary"}
    cases: list[tuple[str, int, tuple[int, int], int, dict[str, Any]]] = [
        ("SegNet", 4, SIZE, 0, {}),
        ("SegNet", 4, SIZE, 4, summary),
        ("SegNet", 4, SIZE, 16, summary),
        ("UNet", 4, SIZE, 16, summary),
        ("UNet", 4, SIZE, 16, {}),
        ("UNet", 1, LARGE, 4, summary),
        ("UNet", 1, LARGE, 4, summary | {"tile": 512, "overlap": 128}),
    ]
    rows = []
    for name, images, size, samples, options in cases:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            added = alone.submit(added_mib, name, images, size, samples, options).result()
        row = {"network": name, "images": images, "size": size, "samples": samples, **options, "added_mib": added}
        print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
    return rows


def ratio(run: Callable[[], object], baseline: Callable[[], object], device: str, repeats: int) -> tuple[float, float]:
    """Return the median seconds of `run`, and the median of its ratio to `baseline`, measured in turns."""

    def seconds(call: Callable[[], object]) -> float:
        start = now()
        call()
        return now() - start

    def now() -> float:
        if device != "cuda":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    baseline()
    run()
    times = [(seconds(baseline), seconds(run)) for _ in range(repeats)]
    return statistics.median(b for _, b in times), statistics.median(b / a for a, b in times)


@torch.no_grad()
def speed(device: str, repeats: int) -> list[dict]:
    """Measure the time of 16 samples for one image."""
    rows = []
    for name in NETWORKS:
        network, posterior = fitted(name, device)
        x = torch.randn(1, 3, *SIZE, device=device)
        ways: dict[str, tuple[bn.Posterior, Callable[[Tensor], Tensor]]] = {"eager": (posterior, network)}
        if device == "cuda":
            fast, fixed = posterior.compile(), torch.compile(network, mode="reduce-overhead", dynamic=False)
            ways |= {"compiled": (fast, fixed), "compiled, in eager passes": (fast, network)}
        for way, (ours, plain) in ways.items():
            run = partial(ours.predict, x, bn.MonteCarlo(16), keep="summary")
            took, passes = ratio(run, partial(plain, x), device, repeats)
            rows.append({"network": name, "way": way, "samples": 16, "seconds": took, "passes": passes})
            print(f"{name:7s} {way:25s} 16 samples {took:7.3f} s, {passes:5.2f} forward passes", flush=True)
    return rows


def fits() -> list[dict]:
    """Measure fits on images of full size with a network of a quarter of the width."""
    rows = []
    network, images = SegNet(CLASSES, width=16).eval(), torch.randn(64, 3, *SIZE)
    for label, method in {
        "MCBN, 16 batches": bn.MCBN(4, states=16),
        "GaussianBN, 16 batches": bn.GaussianBN(4),
    }.items():
        row = {"network": "SegNet(width=16)", "method": label} | fitting.measure(method, network, images, 1)
        print(
            f"{label:22s} {row['passes_seconds']:6.1f} s of forward passes; the fit takes {row['ratio']:.2f} of that",
            flush=True,
        )
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=2, help="Repeats of the time measurement on a CPU.")
    parser.add_argument(
        "--only", choices=("speed", "fits", "memory"), help="Measure only this, and keep the rest of the file."
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    out = options.out or Path(f"results/segmentation_{options.device}.json")
    parts = {"speed": partial(speed, options.device, options.repeats if options.device == "cpu" else 20)}
    if options.device == "cpu":
        parts |= {"fits": fits, "memory": memory}
    command = " ".join(["python -m benchmarks.segmentation", *sys.argv[1:]])
    result: dict[str, Any] = json.loads(out.read_text()) if options.only else {}
    result["machine"] = machine(options.device) | {"command": command}
    result |= {name: part() for name, part in parts.items() if options.only in (None, name)}
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
