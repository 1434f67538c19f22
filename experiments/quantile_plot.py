"""Q-Q plots of batch statistics: quantiles of real batches against those of a normal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy
import torch

from bayesnorm.errors import BayesNormError
from bayesnorm.plots import style
from bayesnorm.theory import BatchSizeDiagnosis, Diagnosis, Normality

from .normality import critical_distance, normal_quantiles, unit_quantiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Statistic = Literal["mean", "std"]
NAMES = {"mean": "batch means", "std": "batch standard deviations"}


@dataclass(frozen=True)
class QQPlot:
    """Quantiles of a batch statistic over S batches, against those of a normal.

    Args:
        theoretical: Quantiles of the standard normal, (S,).
        curves: Empirical quantiles by label, each (S,).
        critical: The Kolmogorov-Smirnov distance that is rejected at 5 %; a curve with a larger distance leaves the
            band.
        title: Title, which names the statistic.
        fitted: Whether values are standardised by their own moments instead of the theoretical ones.
        others: Curves in the background, (S, any number).
    """

    theoretical: np.ndarray
    curves: dict[str, np.ndarray]
    critical: float
    title: str
    fitted: bool = False
    others: np.ndarray | None = field(default=None, repr=False)

    @classmethod
    def of_units(
        cls,
        diagnosis: Diagnosis,
        layer: str,
        statistic: Statistic = "mean",
        *,
        batch_size: int | None = None,
        units: Sequence[int] | None = None,
        fitted: bool = False,
    ) -> Self:
        """Show some units of a layer, and all others in the background.

        Args:
            diagnosis: The result of `diagnose`.
            layer: The layer's name.
            statistic: "mean" or "std" of the batches.
            batch_size: A batch size of the diagnosis; None if it has only one.
            units: Indices of the units; None takes those with the smallest, the median and the largest distance.
            fitted: Whether to compare with a normal with the values' own moments instead of the theoretical ones.
        """
        size = diagnosis.at(batch_size)
        result = statistic_of(size, layer, statistic)
        distance, p_value = (
            (result.fitted_distance, result.fitted_p_value) if fitted else (result.distance, result.p_value)
        )
        varying = [int(unit) for unit in distance.argsort() if not bool(distance[unit].isnan())]
        if not varying:
            raise BayesNormError(
                f"layer: no unit of {layer!r} varies between batches, so there is nothing to plot. Choose another "
                "layer."
            )
        if units is None:
            names = {varying[0]: "closest", varying[len(varying) // 2]: "median", varying[-1]: "farthest"}
        else:
            names = dict.fromkeys(units, "")
        curves = {}
        for unit, name in names.items():
            quantiles = unit_quantiles(result, unit, fitted).numpy()
            curves[f"{name} unit {unit}, p = {float(p_value[unit]):.2g}".strip()] = quantiles
        others = [unit_quantiles(result, unit, fitted) for unit in varying if unit not in names]
        return cls(
            **_common(size, f"{layer}: {NAMES[statistic]}, M = {size.batch_size}", fitted),
            curves=curves,
            others=torch.stack(others, dim=1).numpy() if others else None,
        )

    @classmethod
    def over_batch_sizes(
        cls, diagnosis: Diagnosis, layer: str, unit: int, statistic: Statistic = "mean", *, fitted: bool = False
    ) -> Self:
        """Show one unit at every batch size of a diagnosis."""
        curves = {
            f"M = {size.batch_size}": unit_quantiles(statistic_of(size, layer, statistic), unit, fitted).numpy()
            for size in diagnosis.sizes
        }
        return cls(**_common(diagnosis.sizes[0], f"{layer}, unit {unit}: {NAMES[statistic]}", fitted), curves=curves)

    @classmethod
    def over_epochs(
        cls,
        result: Mapping[int, Diagnosis],
        layer: str,
        unit: int,
        statistic: Statistic = "mean",
        *,
        batch_size: int | None = None,
        fitted: bool = False,
    ) -> Self:
        """Show one unit at every diagnosed epoch, given diagnoses by epoch."""
        if not result:
            raise BayesNormError("found is empty. Pass diagnoses of at least one epoch.")
        sizes = {epoch: diagnosis.at(batch_size) for epoch, diagnosis in result.items()}
        first = next(iter(sizes.values()))
        curves = {
            f"epoch {epoch}": unit_quantiles(statistic_of(size, layer, statistic), unit, fitted).numpy()
            for epoch, size in sizes.items()
        }
        title = f"{layer}, unit {unit}: {NAMES[statistic]}, M = {first.batch_size}"
        return cls(**_common(first, title, fitted), curves=curves)

    def draw(self, ax: Axes | None = None) -> Axes:
        """Plot into `ax`, or into a new figure."""
        ax, now = style.axes(ax, style.SQUARE), style.current()
        reach = float(self.theoretical[-1]) + 0.8
        lower, upper = self.band()
        label = "not rejected at 5 %"
        ax.fill_between(self.theoretical, lower, upper, color=now.faint, alpha=0.16, linewidth=0, label=label)
        if self.others is not None:
            lines = ax.plot(self.theoretical, self.others, color=now.backdrop, linewidth=0.5, alpha=0.45)
            lines[0].set_label("other units")
        ax.plot([-reach, reach], [-reach, reach], color=now.faint, linewidth=1.2, linestyle="--")
        for number, (label, values) in enumerate(self.curves.items()):
            look = now.look(number)
            ax.plot(self.theoretical, values, color=look.colour, linestyle=look.stroke, linewidth=2.0, label=label)
        ax.set_xlim(-reach, reach)
        ax.set_ylim(-reach - 0.4, reach + 0.4)
        ax.set_xlabel("standard normal quantile")
        ax.set_ylabel("quantile of the batches, " + ("own moments" if self.fitted else "theoretical moments"))
        style.headline(ax, self.title)
        style.legend(ax, loc="upper left")
        return ax

    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the band (lower, upper), each (S,), that contains every quantile of a sample that is not rejected."""
        batches = len(self.theoretical)
        middle = scipy.special.ndtr(self.theoretical)
        half = self.critical - 0.5 / batches  # a step of the empirical distribution has its quantile in its middle
        lower, upper = (scipy.special.ndtri(np.clip(middle + sign * half, 0, 1)).clip(-9, 9) for sign in (-1, 1))
        return lower, upper


def statistic_of(size: BatchSizeDiagnosis, layer: str, statistic: Statistic) -> Normality:
    """Return one statistic of a layer from a diagnosis."""
    if statistic not in NAMES:
        raise BayesNormError(f'statistic must be "mean" or "std", got {statistic!r}.')
    result: Normality = getattr(size.layer(layer), statistic)
    return result


def _common(size: BatchSizeDiagnosis, title: str, fitted: bool) -> dict[str, Any]:
    """Return the fields that all three kinds of Q-Q plots share."""
    return {
        "theoretical": normal_quantiles(size.batches).numpy(),
        "critical": critical_distance(size.batches, fitted),
        "title": title,
        "fitted": fitted,
    }
