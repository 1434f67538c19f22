"""Measure the time of scoring many predictions, beside the library scoringrules.

    python -m benchmarks.metrics                # a million predictions, 64 samples
    python -m benchmarks.metrics --points 100000

Prints medians over repeats, the memory that scores of mixtures add, and the largest difference between the libraries.
"""

from __future__ import annotations

import argparse
import math
import os
import platform

import numpy as np
import scoringrules
import torch

from bayesnorm import metrics
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.report import cpu_name
from experiments.measuring import median_seconds, with_added_mib


def gaussian_log_score(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return log densities of normal distributions, computed by scoringrules."""
    return -scoringrules.logs_normal(y, mean, std)


def line(name: str, points: int, ours: float, theirs: float | None, difference: float | None) -> None:
    """Print one line of the table."""
    other = f"{theirs:9.3f} s" if theirs is not None else f"{'-':>11}"
    gap = f"{difference:9.1e}" if difference is not None else f"{'-':>9}"
    print(f"{name:<44}{points:>10,}{ours:9.3f} s {other}   {gap}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--points", type=int, default=1_000_000, help="Predictions for the Gaussian scores and for PLL."
    )
    parser.add_argument("--mixture-points", type=int, default=20_000, help="Predictions for the CRPS of mixtures.")
    parser.add_argument("--reference-points", type=int, default=1_000, help="How many of these scoringrules scores.")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    points, some, few, samples = options.points, options.mixture_points, options.reference_points, options.samples
    print(f"torch {torch.__version__}, scoringrules {scoringrules.__version__}, Python {platform.python_version()}")
    print(f"{cpu_name()}, {os.cpu_count()} cores seen, {options.threads} threads; float32, {samples} samples")
    print(f"median of {options.repeats} repeats\n")
    print(f"{'':<44}{'points':>10}{'bayesnorm':>11} {'scoringrules':>11}   {'largest':>9}\n{'':<79}difference")

    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(samples, points, generator=generator)
    y = 1.2 * torch.randn(points, generator=generator)
    noise = torch.tensor(0.5)
    mixture = RegressionPredictive(loc, noise)
    summary = RegressionPredictive(mixture.mean[None], mixture.std[None])
    mean, std, target = (values.numpy() for values in (mixture.mean, mixture.std, y))

    ours, scores = median_seconds(lambda: metrics.crps_points(summary, y), options.repeats)
    theirs, reference = median_seconds(lambda: scoringrules.crps_normal(target, mean, std), options.repeats)
    line("CRPS, Gaussian, from means and variances", points, ours, theirs, np.abs(scores.numpy() - reference).max())
    ours, scores = median_seconds(lambda: metrics.pll_points(summary, y, form="gaussian"), options.repeats)
    theirs, reference = median_seconds(lambda: gaussian_log_score(target, mean, std), options.repeats)
    line("PLL, Gaussian, from means and variances", points, ours, theirs, np.abs(scores.numpy() - reference).max())

    def from_samples() -> tuple[torch.Tensor, torch.Tensor]:
        predictive = RegressionPredictive(loc, noise)
        return metrics.crps(predictive, y), metrics.gaussian_pll(predictive, y)

    ours, _ = median_seconds(from_samples, options.repeats)
    line("both, with the moments of all samples", points, ours, None, None)

    ours, scores = median_seconds(lambda: metrics.pll_points(mixture, y), options.repeats)
    log_density = -0.5 * ((target[:few] - loc[:, :few].double().numpy()) / 0.5) ** 2 - math.log(
        0.5 * (2 * math.pi) ** 0.5
    )
    reference = np.logaddexp.reduce(log_density, 0) - math.log(samples)
    line("PLL, mixture (compared with NumPy)", points, ours, None, np.abs(scores[:few].numpy() - reference).max())

    shared = RegressionPredictive(loc[:, :some].contiguous(), noise)
    separate = RegressionPredictive(shared.loc, 0.2 + torch.rand(samples, some, generator=generator))
    for name, predictive in (("one scale", shared), ("a scale per draw", separate)):
        ours, scores = median_seconds(
            lambda p=predictive: metrics.crps_points(p, y[:some], form="mixture"), options.repeats
        )
        line(f"CRPS, mixture, {name}", some, ours, None, None)
        fewer = RegressionPredictive(predictive.loc[:, :few], predictive.scale[:, :few])
        ours, scores = median_seconds(lambda p=fewer: metrics.crps_points(p, y[:few], form="mixture"), options.repeats)
        theirs, reference = median_seconds(
            lambda p=fewer: scoringrules.crps_mixnorm(target[:few], p.loc.T.numpy(), p.scale.T.numpy()), options.repeats
        )
        line(f"CRPS, mixture, {name}", few, ours, theirs, np.abs(scores.numpy() - reference).max())
    added = {
        "PLL": with_added_mib(lambda: metrics.pll_points(mixture, y))[1],
        "CRPS": with_added_mib(lambda: metrics.crps_points(separate, y[:some], form="mixture"))[1],
    }
    if all(map(math.isfinite, added.values())):
        told = ", ".join(f"{name} {value:.0f} MiB" for name, value in added.items())
        print(f"\nmemory added by scores of mixtures: {told} (bound: 1024 MiB)")


if __name__ == "__main__":
    main()
