"""Check that the regression benchmark runs the package's own functions: its samples, scores and choices.

    python -m benchmarks.package_profile

Runs a very small unit of each family on the yacht set and records every function that is called (`sys.setprofile`).
Prints how many functions of each subpackage ran, and how often the required functions were called. Ends with an error
if a required subpackage or function was not called.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

import torch

import bayesnorm
import experiments
from bayesnorm import metrics
from bayesnorm.calibration import minimise_on_log_scale
from bayesnorm.engines import MonteCarlo
from bayesnorm.methods import MCBN, MNF, BayesByBackprop, GaussianBN, StochasticBN
from bayesnorm.posterior import BatchNormPosterior, Empirical, LowRankGaussian, VariationalPosterior, mask_seeds
from bayesnorm.predictive import GaussianPredictive
from bayesnorm.tabular.stacked import StackedExecutable, train_stacked
from bayesnorm.theory import kl_divergence
from experiments.stacked_networks import batchnorm_sampler, fit_stacked, output_moments
from experiments.uci import unit, weights
from experiments.uci.presets import PRESETS, Preset

MUST_RUN = ("methods", "posterior", "predictive", "metrics", "calibration", "tabular")
"""Subpackages that every unit must run."""

SHARED = (
    train_stacked,
    GaussianPredictive.crps,
    minimise_on_log_scale,
    metrics.crps,
    metrics.normalised_crps,
    metrics.pll_points,
    metrics.normalised_pll,
    metrics.coverage,
    metrics.rmse,
)

FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "bn": (
        MCBN.distribution,
        GaussianBN.distribution,
        GaussianBN.summarised,
        StochasticBN.distribution,
        fit_stacked,
        batchnorm_sampler,
        Empirical.sample,
        LowRankGaussian.sample,
        BatchNormPosterior.state,
        StackedExecutable.run,
        output_moments,
        GaussianPredictive.expected_log_prob,
        kl_divergence,
        *SHARED,
    ),
    "dropout": (fit_stacked, mask_seeds, StackedExecutable.run, *SHARED),
    "bbb": (BayesByBackprop.fit, VariationalPosterior.sample, MonteCarlo.outputs, *SHARED),
    "mnf": (MNF.fit, VariationalPosterior.sample, MonteCarlo.outputs, *SHARED),
}
"""Functions that a unit of each family must call."""

SMALL = Preset(
    sets=("yacht",),
    splits=(1,),
    folds=2,
    seeds=(1, 2),
    weight_decays=(1e-3,),
    batch_sizes=(32,),
    rates=(0.05,),
    epochs=2,
    evaluate_every=2,
    patience=1,
    samples=20,
    weight_steps=4,
    weight_samples=4,
)

ROOTS = {Path(bayesnorm.__file__).parent: None, Path(experiments.__file__).parent: "experiments"}
"""Folders whose functions are recorded, and the name under which they are counted; None counts by subpackage."""


class Ran:
    """Records the functions that are called inside a `with` block, in this thread and in those that it starts."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.calls[frame.f_code] += 1

    def packages(self) -> Counter[str]:
        """Return how many different functions of each subpackage ran, without comprehensions and lambdas."""
        packages = (package_of(code) for code in self.calls if not code.co_name.startswith("<"))
        return Counter(package for package in packages if package is not None)

    def times(self, function: Callable[..., Any]) -> int:
        """Return how often a function was called."""
        return self.calls[inspect.unwrap(function).__code__]

    def missing(self, functions: Iterable[Callable[..., Any]]) -> list[str]:
        """Return the required subpackages and functions that were not called."""
        ran = self.packages()
        packages = [f"{package}/" for package in MUST_RUN if package not in ran]
        return packages + [function.__qualname__ for function in functions if not self.times(function)]


def package_of(code: CodeType) -> str | None:
    """Return the subpackage of a function; None if it belongs to neither the package nor the experiments."""
    path = Path(code.co_filename)
    for root, package in ROOTS.items():
        if path.is_relative_to(root):
            return package or (path.relative_to(root).parts[0] if path.parent != root else "(top level)")
    return None


def run_unit(family: str) -> None:
    """Run the small unit of a family."""
    if family in ("bbb", "mnf"):
        weights.run("profile", "yacht", family, split=1, seed=1)
    else:
        unit.run("profile", "yacht", family, 32.0 if family == "bn" else 0.05, "cpu")


def main() -> int:
    torch.set_num_threads(1)  # The profile sees functions of this thread only.
    PRESETS["profile"] = SMALL
    results = {}
    for family in FUNCTIONS:
        with Ran() as results[family]:
            run_unit(family)
    packages = {family: ran.packages() for family, ran in results.items()}
    print(f"{'functions that ran':<40}" + "".join(f"{family:>10}" for family in results))
    for package in sorted({package for counts in packages.values() for package in counts}):
        print(f"  {package:<38}" + "".join(f"{counts[package]:>10}" for counts in packages.values()))
    print("calls")
    for function in dict.fromkeys(function for group in FUNCTIONS.values() for function in group):
        print(f"  {function.__qualname__:<38}" + "".join(f"{ran.times(function):>10}" for ran in results.values()))
    failed = False
    for family, ran in results.items():
        if missing := ran.missing(FUNCTIONS[family]):
            print(f"{family}: {', '.join(missing)} not called", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
