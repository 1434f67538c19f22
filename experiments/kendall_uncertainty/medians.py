"""Measure how both parts of the uncertainty change with more training rows, and on rows of another distribution."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesnorm.posterior import Posterior

from ..panels import panels
from ..splits import Rows, take
from .posteriors import COLOURS, MOST_ROWS, SETS, STEPS, posteriors, predict, standardised

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Medians:
    """Medians over test rows of both parts of the uncertainty, in several cases.

    Args:
        title: How the cases differ.
        axis: The name of the cases.
        found: Epistemic and aleatoric standard deviation of every run, by set, posterior and case.
    """

    title: str
    axis: str
    found: dict[str, dict[str, dict[str, list[tuple[float, float]]]]]

    def ratio(self, dataset: str, name: str, part: int) -> float:
        """Return the last case's median over the first's, averaged over runs; part 0 is epistemic, 1 aleatoric."""
        cases = list(self.found[dataset][name].values())
        return statistics.fmean(last[part] / first[part] for first, last in zip(cases[0], cases[-1], strict=True))

    def table(self) -> str:
        """Return the mean over runs of every case, and the ratio of the last to the first, as text."""
        lines = [self.title]
        for dataset, methods in self.found.items():
            for name, cases in methods.items():
                for part, label in enumerate(("epistemic", "aleatoric")):
                    shown = "  ".join(f"{case} {mean:.4f}" for case, mean in _means(cases, part).items())
                    lines.append(
                        f"{dataset:8} {name:16} {label:10} {shown}  ratio {self.ratio(dataset, name, part):.2f}"
                    )
        return "\n".join(lines)

    def draw(self) -> Axes:
        """Plot the mean over runs of every case, one panel per set."""
        (axes,) = panels(1, len(self.found))
        for ax, (dataset, methods) in zip(axes, self.found.items(), strict=True):
            for (name, cases), colour in zip(methods.items(), COLOURS, strict=True):
                for part, line, label in ((0, "-", "epistemic"), (1, "--", "aleatoric")):
                    means = _means(cases, part)
                    ax.plot(list(means), list(means.values()), line, marker="o", color=colour, label=f"{label}, {name}")
            ax.set(title=dataset, xlabel=self.axis, ylabel="median standard deviation", yscale="log")
        axes[0].legend(frameon=False, fontsize="small")
        return axes[0]


def measure_sizes(sets: Sequence[str] = SETS, seeds: int = 2, steps: int = STEPS, most: int = MOST_ROWS) -> Medians:
    """Train on a quarter, half and all of the training rows."""
    result: dict[str, Any] = {name: {} for name in sets}
    for dataset in sets:
        for seed in range(seeds):
            split = standardised(dataset, seed, most)
            for case, share in (("1/4", 4), ("1/2", 2), ("all", 1)):
                few = take(split.train, slice(len(split.train[0]) // share))
                for name, posterior in posteriors(few, split.validation, seed=seed, steps=steps).items():
                    _add(result[dataset], name, case, posterior, split.test[0])
    return Medians("size: more training rows", "training rows", result)


def measure_shift(sets: Sequence[str] = SETS, seeds: int = 2, steps: int = STEPS, most: int = MOST_ROWS) -> Medians:
    """Train on rows near the middle of the inputs' first principal component, and predict the others too."""
    result: dict[str, Any] = {name: {} for name in sets}
    for dataset in sets:
        for seed in range(seeds):
            split = standardised(dataset, seed, most)
            direction = torch.linalg.svd(split.train[0], full_matrices=False)[2][0]
            near = (split.train[0] @ direction).abs().quantile(0.5)

            def is_near(rows: Rows, direction: Tensor = direction, near: Tensor = near) -> Tensor:
                return (rows[0] @ direction).abs() <= near

            rows, validation = (take(part, is_near(part)) for part in (split.train, split.validation))
            inside = is_near(split.test)
            for name, posterior in posteriors(rows, validation, seed=seed, steps=steps).items():
                for case, chosen in (("like the training rows", inside), ("others", ~inside)):
                    _add(result[dataset], name, case, posterior, split.test[0][chosen])
    return Medians("shift: another distribution", "test rows", result)


def _add(result: dict[str, Any], name: str, case: str, posterior: Posterior, x: Tensor) -> None:
    """Add the medians over rows of the epistemic and the aleatoric standard deviation.

    Medians, because predicted log-variances on rows of another distribution may be extreme, and one row could dominate
    a mean.
    """
    predictive = predict(posterior, x)
    both = float(predictive.epistemic.sqrt().median()), float(predictive.aleatoric.sqrt().median())
    result.setdefault(name, {}).setdefault(case, []).append(both)


def _means(cases: dict[str, list[tuple[float, float]]], part: int) -> dict[str, float]:
    return {case: statistics.fmean(run[part] for run in runs) for case, runs in cases.items()}
