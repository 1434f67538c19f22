"""Check that the memory of a process that fits and predicts many times does not grow.

    python -m benchmarks.soak [--rounds 20] [--out results/soak.json]

A round fits ten posteriors, each on a new network: all methods, dense and convolutional networks, and a table. Each
posterior is saved, loaded and used for five predictions with all engines that it supports, four of them in parallel
threads. Twenty rounds are 200 fits and 1,000 predictions. After each round the process counts its tensors, threads and
open files, and reads its memory. The first quarter of the rounds fills caches of a fixed size and does not count. Ends
with an error if anything grew from the second quarter to the last.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.tabular import BayesNormRegressor, load
from experiments.machine import machine
from experiments.measuring import resident_mib

PREDICTIONS, THREADS = 5, 4

# Growth of memory from the second quarter of the rounds to the last that is due to the allocator.
ALLOWED_MIB = 1.0


# An option of glibc's allocator, from malloc.h.
ARENA_MAX = -8


@dataclass(frozen=True)
class Held:
    """Counts of a process after a round."""

    fits: int
    predictions: int
    resident_mib: float
    tensors: int
    threads: int
    files: int


def dense() -> tuple[nn.Module, Tensor, Tensor, bn.Likelihood]:
    """Return a dense regression network with inputs, targets and likelihood."""
    layers = [nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)]
    x = torch.randn(96, 3)
    return nn.Sequential(*layers).eval(), x, x.sum(1, keepdim=True), bn.Gaussian(4.0)


def convolutional() -> tuple[nn.Module, Tensor, Tensor, bn.Likelihood]:
    """Return a convolutional classifier with images, classes and likelihood."""
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
    return nn.Sequential(*layers).eval(), torch.randn(64, 3, 10, 10), torch.randint(4, (64,)), bn.Categorical()


METHODS: tuple[tuple[Any, Callable[[], tuple[nn.Module, Tensor, Tensor, bn.Likelihood]]], ...] = (
    (bn.MCBN(batch_size=16, states=32), dense),
    (bn.MCBN(batch_size=16, states=32), convolutional),
    (bn.GaussianBN(batch_size=16), convolutional),
    (bn.GaussianBN(batch_size=16, states=32, rank=8), dense),
    (bn.StochasticBN(batch_size=16, states=32), dense),
    (bn.MCDropout(), dense),
    (bn.DeepEnsemble(members=2, epochs=2), dense),
    (bn.BayesByBackprop(epochs=2), dense),
    (bn.MNF(epochs=2), dense),
)


def ask(predict: Callable[[int], object]) -> int:
    """Predict once in this thread, then in parallel threads, each time with another seed; return the number."""
    predict(0)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(predict, range(1, PREDICTIONS)):
            pass
    return PREDICTIONS


def fit_and_ask(method: Any, case: Callable[[], Any], folder: Path) -> int:
    """Fit a method on a new network, save it, load it and predict; return the number of predictions."""
    model, x, y, likelihood = case()
    posterior = method.fit(model, (x, y), likelihood)
    engines: list[bn.Engine] = [bn.MonteCarlo(8)]
    if hasattr(posterior, "directions"):
        posterior = posterior.with_directions(x) if hasattr(posterior, "with_directions") else posterior
        engines += [bn.Delta(), bn.SigmaPoints(rank=2)]
    posterior.save(folder / "soak.bayesnorm")
    loaded = bn.load(folder / "soak.bayesnorm", model)
    return ask(lambda seed: loaded.predict(x, engine=engines[seed % len(engines)], seed=seed).variance)


def table_and_ask(folder: Path) -> int:
    """Do the same with a table estimator."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    settings: dict[str, Any] = {"hidden": (8,), "weight_decay": 1e-3, "batch_size": 8, "epochs": 2, "folds": 2}
    BayesNormRegressor(**settings).fit(x, x.sum(1)).save(folder / "soak.table")
    loaded = load(folder / "soak.table")
    return ask(lambda _: loaded.predict(x, return_std=True))


def one_round(folder: Path) -> tuple[int, int]:
    """Fit and predict with everything once; return the numbers of fits and predictions."""
    asked = [fit_and_ask(method, case, folder) for method, case in METHODS] + [table_and_ask(folder)]
    return len(asked), sum(asked)


def held(fits: int, predictions: int) -> Held:
    """Return the counts of the process after garbage collection."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # returns freed memory to the system
    tensors = sum(issubclass(type(part), Tensor) for part in gc.get_objects())
    threads, files = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd"))
    return Held(fits, predictions, resident_mib(), tensors, threads, files)


def soak(rounds: int, folder: Path, tell: Callable[[Held], None] = lambda _: None) -> list[Held]:
    """Run rounds and return the counts after each of them."""
    results: list[Held] = []
    fits = predictions = 0
    for _ in range(rounds):
        more_fits, more_predictions = one_round(folder)
        fits, predictions = fits + more_fits, predictions + more_predictions
        results.append(held(fits, predictions))
        tell(results[-1])
    return results


def grown(result: list[Held]) -> dict[str, float]:
    """Return how much the median of each count grew from the second quarter of the rounds to the last."""
    quarter = len(result) // 4
    before, after = result[quarter : 2 * quarter], result[-quarter:]

    def growth(name: str) -> float:
        first, last = (statistics.median(getattr(record, name) for record in part) for part in (before, after))
        return float(last - first)

    return {name: growth(name) for name in ("resident_mib", "tensors", "threads", "files")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="Number of rounds, at least 4; each has 10 fits and 50 predictions. [default: 20]",
    )
    parser.add_argument("--out", type=Path, default=Path("results/soak.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ctypes.CDLL(None).mallopt(ARENA_MAX, 1)  # arenas of threads grow and shrink by megabytes, also with plain torch
    start = time.perf_counter()

    def tell(now: Held) -> None:
        print(
            f"{now.fits:4d} fits, {now.predictions:5d} predictions: {now.resident_mib:7.1f} MiB, {now.tensors} "
            f"tensors, {now.threads} threads, {now.files} open files",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as folder:
        outcome = soak(options.rounds, Path(folder), tell)
    more = grown(outcome)
    print(
        "growth from the second quarter to the last:", ", ".join(f"{name} {value:+.4g}" for name, value in more.items())
    )
    result = {
        "machine": machine() | {"command": " ".join(["python -m benchmarks.soak", *sys.argv[1:]])},
        "seconds": time.perf_counter() - start,
        "growth": more,
        "rounds": [asdict(part) for part in outcome],
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    if more.pop("resident_mib") > ALLOWED_MIB or any(value > 0 for value in more.values()):
        sys.exit("The process grew: see the counts above.")


if __name__ == "__main__":
    main()
