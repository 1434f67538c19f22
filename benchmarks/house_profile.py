"""Which rooms of the package a unit of the regression benchmark runs: the samples, scores and choices are the package's.

    python -m benchmarks.house_profile

Runs a very small unit of each family on the yacht set, notes every function that is called (`sys.setprofile`), and
prints how many of each room ran, and how often those were called that a unit should not do without. Ends with an error
where a room, or one of those functions, took no part.
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
from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MCBN, MNF, BayesByBackprop, GaussianBN, StochasticBN
from bayesnorm.posterior import BatchNormPosterior, Empirical, LowRankGaussian, VariationalPosterior, mask_seeds
from bayesnorm.predictive import GaussianPredictive, RegressionPredictive
from bayesnorm.selection import calibrate
from bayesnorm.stacked import StackedEnsemble, fit_stacked, learned_posterior
from bayesnorm.theory import kl_divergence
from experiments.uci import unit, weights
from experiments.uci.presets import PRESETS, Preset

MUST_RUN = ("methods", "engines", "likelihoods", "posterior", "predictive", "metrics", "selection")
"""Rooms without which a unit would not check what users run."""

SHARED = (
    MonteCarlo.outputs,
    Gaussian.predictive,
    RegressionPredictive.crps,
    calibrate,
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
        learned_posterior,
        BatchNormPosterior.sample,
        Empirical.sample,
        LowRankGaussian.sample,
        StackedEnsemble.sample,
        MonteCarlo.moments,
        GaussianPredictive.expected_log_prob,
        kl_divergence,
        *SHARED,
    ),
    "dropout": (fit_stacked, mask_seeds, *SHARED),
    "bbb": (BayesByBackprop.fit, VariationalPosterior.sample, *SHARED),
    "mnf": (MNF.fit, VariationalPosterior.sample, *SHARED),
}
"""Functions that a unit of each family runs."""

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
"""Folders whose functions are noted, and the room that all of a folder belongs to; None: its folders are rooms."""


class Ran:
    """Notes the functions that are called inside a `with` block, in this thread and in those that it starts."""

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

    def rooms(self) -> Counter[str]:
        """Return how many different functions of each room ran; comprehensions and lambdas are parts of others."""
        rooms = (room_of(code) for code in self.calls if not code.co_name.startswith("<"))
        return Counter(room for room in rooms if room is not None)

    def times(self, function: Callable[..., Any]) -> int:
        """Return how often a function was called."""
        return self.calls[inspect.unwrap(function).__code__]

    def missing(self, functions: Iterable[Callable[..., Any]]) -> list[str]:
        """Return the rooms and the functions that should have taken part and did not."""
        ran = self.rooms()
        rooms = [f"{room}/" for room in MUST_RUN if room not in ran]
        return rooms + [function.__qualname__ for function in functions if not self.times(function)]


def room_of(code: CodeType) -> str | None:
    """Return the room that a function is written in; None where it is not the package's, nor an experiment's."""
    path = Path(code.co_filename)
    for root, room in ROOTS.items():
        if path.is_relative_to(root):
            return room or (path.relative_to(root).parts[0] if path.parent != root else "(no room)")
    return None


def run_unit(family: str) -> None:
    """Run the small unit of a family."""
    if family in ("bbb", "mnf"):
        weights.run("house", "yacht", family, split=1, seed=1)
    else:
        unit.run("house", "yacht", family, 32.0 if family == "bn" else 0.05, "cpu")


def main() -> int:
    torch.set_num_threads(1)  # so that networks are run in this thread
    PRESETS["house"] = SMALL
    found = {}
    for family in FUNCTIONS:
        with Ran() as found[family]:
            run_unit(family)
    rooms = {family: ran.rooms() for family, ran in found.items()}
    print(f"{'functions that ran':<40}" + "".join(f"{family:>10}" for family in found))
    for room in sorted({room for counts in rooms.values() for room in counts}):
        print(f"  {room:<38}" + "".join(f"{counts[room]:>10}" for counts in rooms.values()))
    print("calls")
    for function in dict.fromkeys(function for own in FUNCTIONS.values() for function in own):
        print(f"  {function.__qualname__:<38}" + "".join(f"{ran.times(function):>10}" for ran in found.values()))
    failed = False
    for family, ran in found.items():
        if missing := ran.missing(FUNCTIONS[family]):
            print(f"{family}: {', '.join(missing)} took no part", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
