"""Plot the fraction of units whose batch statistics are rejected as normal, over batch sizes or epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from bayesnorm.errors import BayesNormError
from bayesnorm.plots import style
from bayesnorm.theory import BatchSizeDiagnosis, Diagnosis
from bayesnorm.theory.diagnosis import LEVEL

from .quantile_plot import NAMES, Statistic, statistic_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class RejectionPlot:
    """Fractions of rejected units by layer, over batch sizes or epochs.

    Args:
        at: Batch sizes or epochs.
        axis: Name of the values in `at`.
        theory: Fraction of units rejected against the theoretical normal, by layer, each as long as `at`.
        fitted: The same against a normal with the values' own moments.
        title: Title, which names the statistic.
    """

    at: tuple[int, ...]
    axis: str
    theory: dict[str, np.ndarray]
    fitted: dict[str, np.ndarray]
    title: str

    @classmethod
    def over_batch_sizes(cls, diagnosis: Diagnosis, statistic: Statistic = "mean") -> Self:
        """Show every batch size of a diagnosis."""
        sizes = {size.batch_size: size for size in diagnosis.sizes}
        return cls._from_sizes(sizes, "batch size M", statistic, "all units")

    @classmethod
    def over_epochs(
        cls, result: Mapping[int, Diagnosis], statistic: Statistic = "mean", *, batch_size: int | None = None
    ) -> Self:
        """Show every diagnosed epoch, given diagnoses by epoch."""
        if not result:
            raise BayesNormError("found is empty. Pass diagnoses of at least one epoch.")
        sizes = {epoch: diagnosis.at(batch_size) for epoch, diagnosis in result.items()}
        size = next(iter(sizes.values())).batch_size
        return cls._from_sizes(sizes, "epoch", statistic, f"all units, M = {size}")

    @classmethod
    def _from_sizes(cls, sizes: dict[int, BatchSizeDiagnosis], axis: str, statistic: Statistic, which: str) -> Self:
        layers = [layer.name for layer in next(iter(sizes.values())).layers]
        by_layer = {name: [statistic_of(size, name, statistic) for size in sizes.values()] for name in layers}
        return cls(
            at=tuple(sizes),
            axis=axis,
            theory={name: np.array([one.rejected for one in result]) for name, result in by_layer.items()},
            fitted={name: np.array([one.fitted_rejected for one in result]) for name, result in by_layer.items()},
            title=f"{NAMES[statistic]}, {which}",
        )

    def draw(self, ax: Axes | None = None) -> Axes:
        """Plot into `ax`, or into a new figure: one colour per layer, hollow marks for the fitted normal."""
        ax, now = style.axes(ax, style.SQUARE), style.current()
        places = np.arange(len(self.at))
        for number, layer in enumerate(self.theory):
            look = now.look(number)
            for shares, name, stroke, face in (
                (self.theory[layer], "theoretical normal", "-", look.colour),
                (self.fitted[layer], "fitted normal", "--", now.paper),
            ):
                ax.plot(
                    places,
                    100 * shares,
                    color=look.colour,
                    linestyle=stroke,
                    marker=look.marker,
                    markerfacecolor=face,
                    label=f"{layer}, {name}",
                )
        ax.axhline(100 * LEVEL, color=now.faint, linewidth=1.2, linestyle=":", label="expected by chance")
        ax.set_xticks(places, [str(value) for value in self.at])
        ax.set_ylim(-3, 103)
        ax.set_xlabel(self.axis)
        ax.set_ylabel("units rejected at 5 % (%)")
        style.headline(ax, self.title)
        style.legend(ax)
        return ax
