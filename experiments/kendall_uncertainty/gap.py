"""One input, noise that depends on it, and a gap in the data."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesnorm.plots import style

from ..panels import panels
from ..splits import Rows
from .posteriors import COLOURS, STEPS, posteriors, predict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Gap:
    """Results along one input.

    Args:
        x: The inputs.
        seen: Whether there are data at each input.
        noise: True standard deviation of the noise.
        points: Inputs and targets of the training rows.
        mean: Predictive mean of MCBN.
        aleatoric: Standard deviations of the aleatoric part, by posterior.
        epistemic: Standard deviations of the epistemic part, by posterior.
    """

    x: list[float]
    seen: list[bool]
    noise: list[float]
    points: tuple[list[float], list[float]]
    mean: list[float]
    aleatoric: dict[str, list[float]]
    epistemic: dict[str, list[float]]

    def follows_noise(self, name: str) -> float:
        """Return the correlation of aleatoric uncertainty and true noise where there are data."""
        pairs = zip(self.aleatoric[name], self.noise, self.seen, strict=True)
        result, true = zip(*[(a, b) for a, b, seen in pairs if seen], strict=True)
        return statistics.correlation(result, true)

    def gap_ratio(self, name: str) -> float:
        """Return the mean epistemic uncertainty in the gap divided by that where there are data."""
        inside = [value for value, x in zip(self.epistemic[name], self.x, strict=True) if abs(x) < 0.75]
        outside = [value for value, seen in zip(self.epistemic[name], self.seen, strict=True) if seen]
        return statistics.fmean(inside) / statistics.fmean(outside)

    def table(self) -> str:
        """Return both numbers of every posterior as text."""
        lines = [
            "gap: correlation of aleatoric uncertainty and true noise; ratio of epistemic uncertainty in the gap and "
            "at the data"
        ]
        return "\n".join(
            [*lines, *(f"{n:18} {self.follows_noise(n):6.2f} {self.gap_ratio(n):6.2f}" for n in self.epistemic)]
        )

    def draw(self) -> Axes:
        """Plot the data with MCBN's mean, and both parts of the uncertainty."""
        ((left, right),) = panels(1, 2)
        left.scatter(*self.points, s=6, color=style.BLACK, alpha=0.35, label="training points")
        left.plot(self.x, self.mean, color=style.BLUE, label="predictive mean, MCBN")
        left.legend(frameon=False, fontsize="small")
        left.set(xlabel="x", ylabel="y", title="Noise grows with x; no data between -1 and 1")
        right.plot(self.x, self.noise, color=style.BLACK, ls=":", label="true noise")
        for (name, aleatoric), colour in zip(self.aleatoric.items(), COLOURS, strict=True):
            right.plot(self.x, aleatoric, color=colour, ls="--", label=f"aleatoric, {name}")
            right.plot(self.x, self.epistemic[name], color=colour, label=f"epistemic, {name}")
        right.axvspan(-1, 1, color="0.92", zorder=0)
        right.set(
            xlabel="x",
            ylabel="standard deviation",
            title="Both parts of the uncertainty",
            yscale="log",
            ylim=(1e-3, 20),
        )
        right.legend(frameon=False, fontsize="small", ncols=2, loc="upper left")
        return left


def measure_gap(seed: int = 0, steps: int = STEPS, rows: int = 1000) -> Gap:
    """Measure both parts of the uncertainty for y = sin(2 x): noise from 0.05 to 0.4, data on [-4, -1] and [1, 4]."""

    def noise(x: Tensor) -> Tensor:
        return 0.05 + 0.35 * torch.sigmoid(2 * x)

    def sample(number: int, seed: int) -> Rows:
        generator = torch.Generator().manual_seed(seed)
        side = torch.randint(2, (number, 1), generator=generator) * 2.0 - 1
        x = side * (1 + 3 * torch.rand(number, 1, generator=generator))
        return x, torch.sin(2 * x) + noise(x) * torch.randn(number, 1, generator=generator)

    train_rows, validation = sample(rows, 2 * seed), sample(rows // 4, 2 * seed + 1)
    grid = torch.linspace(-4, 4, 321)[:, None]
    results = {
        name: predict(posterior, grid)
        for name, posterior in posteriors(train_rows, validation, seed=seed, steps=steps).items()
    }
    return Gap(
        x=grid[:, 0].tolist(),
        seen=(grid[:, 0].abs() >= 1).tolist(),
        noise=noise(grid)[:, 0].tolist(),
        points=(train_rows[0][:, 0].tolist(), train_rows[1][:, 0].tolist()),
        mean=results["MCBN"].mean[:, 0].tolist(),
        aleatoric={name: p.aleatoric.sqrt()[:, 0].tolist() for name, p in results.items()},
        epistemic={name: p.epistemic.sqrt()[:, 0].tolist() for name, p in results.items()},
    )
