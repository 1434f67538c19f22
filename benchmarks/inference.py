"""Measure time, memory and exactness of every way of predicting with MCBN.

    python -m benchmarks.inference [--device cuda] [--out results/inference_cuda.json]

Time: every engine on the same inputs, in milliseconds and as a ratio to one forward pass of the same network in the
same mode (eager or compiled). Both are measured in turns; the medians are reported.
Memory: the peak that a prediction adds.
Exactness: each engine against all samples of the same posterior, on a ResNet-32. The scores are the correlation of
log-variances (per image, summed over the logits, and per logit), the median ratio of variances, and the rank
correlation of mutual information.
Needs the data folder (BAYESNORM_DATA) with the CIFAR-10 images, the ResNet's weights and the UCI sets.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import bayesnorm as bn
from bayesnorm.metrics import spearman
from bayesnorm.training import Rescaled, train
from experiments.data import load_cifar10, to_network_input
from experiments.machine import machine
from experiments.measuring import with_added_mib
from experiments.networks import load_cifar_resnet, paper_mlp
from experiments.splits import paper_rows

BATCH_SIZE, DRAWS = 32, 32


def resnet(device: str) -> tuple[nn.Module, Tensor, Tensor, bn.Likelihood]:
    """Return a trained ResNet-32, training images, test images and the likelihood."""
    images, _ = load_cifar10("train", 5000)
    queries, _ = load_cifar10("test", 2000)
    network = load_cifar_resnet(32).to(device)
    return network, to_network_input(images).to(device), to_network_input(queries).to(device), bn.Categorical()


def mlp(device: str) -> tuple[nn.Module, Tensor, Tensor, bn.Likelihood]:
    """Return the same for a regression network with two layers of 50 units, trained briefly on the power plant set."""
    (x, y), _ = paper_rows("power", 1)
    network = Rescaled.from_data(paper_mlp(x.shape[1]), x, y)
    train(network.network, *network.standardise(x, y), loss=mse_loss, epochs=5, batch_size=BATCH_SIZE)
    return network.to(device), x.to(device), x.to(device), bn.Gaussian(0.06)


class _FirstOutput(nn.Module):
    """The first output of another network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x)
        return outputs[:, :1]


def naive(network: nn.Module, train_x: Tensor, x: Tensor, samples: int) -> Tensor:
    """Predict as the paper does: for every sample run a training batch in training mode, then the query."""
    network = copy.deepcopy(network)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0
    outputs = []
    for _ in range(samples):
        rows = torch.randperm(len(train_x))[:BATCH_SIZE].to(train_x.device)
        network.train()(train_x[rows])
        outputs.append(network.eval()(x))
    return torch.stack(outputs)


def now(device: str) -> float:
    """Return the time after the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(device: str, run: Callable[[], object], baseline: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of `run`, and the median of its ratio to `baseline`, measured in turns."""
    start = now(device)
    baseline()
    run()
    repeats = 3 if now(device) - start > 2 else 7
    for _ in range(repeats - 3):
        baseline()
        run()
    times, ratios, start = [], [], now(device)
    while len(ratios) < repeats or (now(device) - start < 1.0 and len(ratios) < 100):
        a = now(device)
        baseline()
        b = now(device)
        run()
        c = now(device)
        times.append(c - b)
        ratios.append((c - b) / (b - a))
    return statistics.median(times), statistics.median(ratios)


def peak_mib(device: str, run: Callable[[], object]) -> float:
    """Return the memory that `run` adds at its peak, on the GPU or in this process."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    return with_added_mib(run)[1]


def speed(name: str, parts: tuple, device: str, batches: list[int], compiled_up_to: int) -> list[dict]:
    """Return time and memory of every engine for some batch sizes."""
    network, train_x, queries, likelihood = parts
    posterior = bn.MCBN(BATCH_SIZE, center="batch").fit(network, train_x, likelihood)
    single = bn.MCBN(BATCH_SIZE, states=64, center="batch").fit(_FirstOutput(network), train_x)
    late = {"last block, T = 32": (2, 32), "last layer, T = 64": (1, 64)} if name == "ResNet-32" else {}
    rows = []
    for batch in batches:
        x = queries[:batch].clone()
        with torch.no_grad():
            eager = lambda x=x: network(x)  # noqa: E731
            runs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
                "naive loop": (lambda x=x: naive(network, train_x, x, DRAWS), eager),
                "cached loop": (lambda x=x: bn.MonteCarlo(DRAWS, vectorize=False).outputs(posterior, x), eager),
                "vectorised": (lambda x=x: bn.MonteCarlo(DRAWS).outputs(posterior, x), eager),
                "SigmaPoints(8)": (lambda x=x: bn.SigmaPoints(8).outputs(posterior, x), eager),
                "Delta": (lambda x=x: bn.Delta().outputs(posterior, x), eager),
                "Delta, one output": (lambda x=x: bn.Delta().outputs(single, x), eager),
            }
            for label, (layers, samples) in late.items():
                few = posterior.at_layers(layers)
                runs[label] = (lambda x=x, few=few, n=samples: bn.MonteCarlo(n).outputs(few, x), eager)
            if batch <= compiled_up_to:
                fixed = torch.compile(network, mode="reduce-overhead", dynamic=False)
                fast = posterior.compile()
                mode = lambda x=x, fixed=fixed: fixed(x)  # noqa: E731
                runs["compiled"] = (lambda x=x, fast=fast: bn.MonteCarlo(DRAWS).outputs(fast, x), mode)
            for engine, (run, baseline) in runs.items():
                took, ratio = seconds(device, run, baseline)
                rows.append(
                    {
                        "network": name,
                        "batch": batch,
                        "engine": engine,
                        "passes": round(ratio, 2),
                        "ms": round(1e3 * took, 3),
                        "MiB": round(peak_mib(device, run), 1),
                    }
                )
                print(
                    f"{name:10} batch {batch:4} {engine:20} {ratio:8.2f} forward passes {1e3 * took:10.3f} ms",
                    flush=True,
                )
    return rows


def exactness(device: str, reference: int, images: int, center: str) -> list[dict]:
    """Compare every engine and every other batch-norm posterior with all samples of MCBN with `reference` states."""
    network, train_x, queries, likelihood = resnet(device)
    x = queries[:images]
    options = {"batch_size": BATCH_SIZE, "states": reference, "center": center}
    posterior = bn.MCBN(**options).fit(network, train_x, likelihood)
    f = bn.MonteCarlo(reference).outputs(posterior, x)
    exact, information = f.var(0, correction=0), likelihood.predictive(f).mutual_information
    rows = []

    def compare(engine: str, passes: str, variance: Tensor, predictive: bn.ClassificationPredictive) -> None:
        def correlation(result: Tensor, true: Tensor) -> float:
            logs = torch.stack([result.double().log().flatten(), true.double().log().flatten()])
            return float(torch.corrcoef(logs)[0, 1])

        row = {
            "center": center,
            "engine": engine,
            "passes": passes,
            "per row": round(correlation(variance.sum(1), exact.sum(1)), 4),
            "per logit": round(correlation(variance, exact), 4),
            "ratio": round(float((variance / exact).median()), 3),
            "MI ranks": round(float(spearman(predictive.mutual_information, information)), 4),
        }
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)

    def sampled(engine: str, passes: int, source: bn.Posterior, seed: int = 1) -> None:
        outputs = bn.MonteCarlo(passes).outputs(source, x, seed)
        compare(engine, str(passes), outputs.var(0), likelihood.predictive(outputs))

    for samples in (16, 64, 128):
        sampled("MonteCarlo", samples, posterior)
    for rank in (4, 8, 16):
        points = bn.SigmaPoints(rank).outputs(posterior, x)
        compare(f"SigmaPoints({rank})", str(2 * rank), points.var(0, correction=0), likelihood.predictive(points))
    gaussian = bn.Delta().outputs(posterior, x)
    compare("Delta", "1 + backward", gaussian.variance, gaussian.predictive(likelihood, 0))
    many = min(reference, 1000)
    methods = {
        "GaussianBN(rank=64)": bn.GaussianBN(rank=64, **options),
        "GaussianBN()": bn.GaussianBN(**options),
        "StochasticBN()": bn.StochasticBN(**options),
    }
    for label, method in methods.items():
        fitted = method.fit(network, train_x, likelihood)
        sampled(label, many, fitted)
        gaussian = bn.Delta().outputs(fitted, x)
        compare(f"{label}, Delta", "1 + backward", gaussian.variance, gaussian.predictive(likelihood, 0))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--reference", type=int, help="Samples of the reference. [default: 2000; on a CPU: 256]")
    parser.add_argument("--images", type=int, help="Test images for the exactness. [default: 1750; on a CPU: 128]")
    parser.add_argument("--batches", type=int, nargs="+", help="Batch sizes. [default: 1 16 64 256]")
    parser.add_argument("--skip", choices=["speed", "exactness"], nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cuda = options.device == "cuda"
    out = options.out or Path("results") / f"inference_{options.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    made_on = machine(options.device) | {"command": " ".join(["python -m benchmarks.inference", *sys.argv[1:]])}
    result: dict = {"machine": made_on, "speed": [], "exactness": []}
    if "speed" not in options.skip:
        for name, parts in {"ResNet-32": resnet, "MLP 50-50": mlp}.items():
            batches = options.batches or [1, 16, 64, 256]
            result["speed"] += speed(name, parts(options.device), options.device, batches, 256 if cuda else 1)
            out.write_text(json.dumps(result, indent=1))
    if "exactness" not in options.skip:
        reference, images = options.reference or (2000 if cuda else 256), options.images or (1750 if cuda else 128)
        result["machine"]["reference"] = f"T = {reference}, {images} images"
        for center in ("batch", "running"):
            result["exactness"] += exactness(options.device, reference, images, center)
    out.write_text(json.dumps(result, indent=1))
    print(f"written: {out}")


if __name__ == "__main__":
    main()
