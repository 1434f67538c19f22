"""Measure the value of each part of the uncertainty: errors of the kept rows, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayesnorm.metrics import aurc, crps, quantile_coverage, retention_curve
from bayesnorm.plots import style
from bayesnorm.predictive import RegressionPredictive

from ..panels import panels
from .posteriors import COLOURS, MOST_ROWS, SETS, STEPS, posteriors, predict, standardised

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = [number / 20 for number in range(1, 20)]


@dataclass(frozen=True)
class Retention:
    """Results by set and part: "epistemic", "aleatoric", or "both".

    Args:
        kept: Fractions of rows that are kept.
        error: Mean absolute errors of the kept rows, at each fraction.
        area: Mean absolute error averaged over all fractions.
        covered: Fractions of targets below the quantiles of `LEVELS`.
        crps: CRPS with this part alone.
    """

    kept: list[float]
    error: dict[str, dict[str, list[float]]]
    area: dict[str, dict[str, float]]
    covered: dict[str, dict[str, list[float]]]
    crps: dict[str, dict[str, float]]

    def table(self) -> str:
        """Return areas and CRPS as text."""
        lines = ["retention: mean absolute error averaged over all kept fractions (AURC), and CRPS"]
        for dataset, areas in self.area.items():
            lines += [
                f"{dataset:8} {name:10} AURC {area:.4f}  CRPS {self.crps[dataset][name]:.4f}"
                for name, area in areas.items()
            ]
        return "\n".join(lines)

    def draw(self) -> Axes:
        """Plot one row for each set: errors of the kept rows, and calibration."""
        axes = panels(len(self.error), 2)
        for (left, right), dataset in zip(axes, self.error, strict=True):
            for (name, error), colour in zip(self.error[dataset].items(), COLOURS, strict=True):
                width = 4 if name == "aleatoric" else 1.6  # if noise dominates, both are on it
                left.plot(self.kept, error, color=colour, lw=width, label=f"by {name}")
                right.plot(LEVELS, self.covered[dataset][name], color=colour, lw=width, label=name)
            right.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
            left.set(
                title=f"{dataset}: the most uncertain rows are dropped",
                xlabel="fraction of rows kept",
                ylabel="mean absolute error",
            )
            right.set(title=f"{dataset}: calibration", xlabel="quantile level", ylabel="fraction of targets below")
            left.legend(frameon=False, fontsize="small")
            right.legend(frameon=False, fontsize="small")
        return axes[0][0]


def measure_retention(
    sets: Sequence[str] = SETS, seed: int = 0, steps: int = STEPS, most: int = MOST_ROWS
) -> Retention:
    """Score MCBN at its calibrated batch size with each part of its uncertainty alone, and with both."""
    shares = [number / 50 for number in range(3, 51)]
    result = Retention(shares, {}, {}, {}, {})
    for dataset in sets:
        split = standardised(dataset, seed, most)
        posterior = posteriors(split.train, split.validation, seed=seed, steps=steps)["MCBN, M' chosen"]
        whole, y = predict(posterior, split.test[0]), split.test[1]
        error = (whole.mean - y).abs().flatten()
        variances = {"epistemic": whole.epistemic, "aleatoric": whole.aleatoric, "both": whole.variance}
        for name, variance in variances.items():
            curve = retention_curve(variance.flatten(), error)
            at = [curve.error[max(0, round(share * len(error)) - 1)].item() for share in shares]
            alone = RegressionPredictive(whole.mean[None], variance.sqrt()[None])
            result.error.setdefault(dataset, {})[name] = at
            result.area.setdefault(dataset, {})[name] = float(aurc(variance.flatten(), error))
            result.covered.setdefault(dataset, {})[name] = quantile_coverage(alone, y, LEVELS).tolist()
            result.crps.setdefault(dataset, {})[name] = float(crps(alone, y))
    return result
