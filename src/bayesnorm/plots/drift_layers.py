"""A plot of drift at every batch-norm layer of a network, in running order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..shift import LEVEL, Drift, holm
from ..words import format_count
from . import style

TITLE = "Drift at every batch-norm layer"

# With more layers, they are numbered instead of named.
MOST_NAMES = 16

# Smaller p-values are drawn as this one.
LEAST = 1e-12

# The height of the axes relative to the highest bar, to leave space for the legend.
ROOM = 1.3


@dataclass(frozen=True)
class DriftLayers:
    """The drift of new data at each of L layers.

    Args:
        names: The layers, in running order, (L,).
        p_value: The p-value of each layer, (L,).
        mean_shift: The shift of channel means, in their standard deviations in training, (L,).
        first_layer: The first layer that differs significantly; None if there is none.
        overall: The p-value over all layers.
        rows: The number of new examples.
        title: The title.
    """

    names: tuple[str, ...]
    p_value: np.ndarray
    mean_shift: np.ndarray
    first_layer: str | None
    overall: float
    rows: int
    title: str = TITLE

    @classmethod
    def from_drift(cls, drift: Drift) -> Self:
        """Return the plot of a result of `bayesnorm.drift`; for an ensemble, that of its first member's layers."""
        return cls(
            tuple(layer.name for layer in drift.layers),
            np.array([layer.p_value for layer in drift.layers]),
            np.array([layer.mean_shift for layer in drift.layers]),
            drift.first_layer,
            drift.p_value,
            drift.rows,
        )

    @property
    def summary(self) -> str:
        """The main result in one line."""
        examples, one = format_count(self.rows, "example"), self.rows == 1
        p_value = f"p = {self.overall:.2g}" if self.overall >= 0.001 else "p < 0.001"
        if self.overall >= LEVEL:
            differ = "does not differ" if one else "do not differ"
            return f"{examples} {differ} significantly from the training distribution ({p_value})"
        where = "" if self.first_layer is None else f", first at {self.first_layer}"
        return f"{examples} {'differs' if one else 'differ'} from the training distribution ({p_value}){where}"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure, with bars for p-values and a line for mean shifts; return the axes."""
        ax, now = style.axes(ax), style.current()
        place = np.arange(len(self.names))
        height = -np.log10(np.clip(self.p_value, LEAST, 1.0))
        beyond = (holm(self.p_value) < LEVEL) & (self.overall < LEVEL)
        for which, colour, label in ((~beyond, now.model, "not significant"), (beyond, now.rival, "significant")):
            if which.any():
                ax.bar(place[which], height[which], width=0.8, color=colour, label=label)
        if self.overall < LEVEL:  # the p-value at which a layer becomes significant, by Holm's method
            limit = LEVEL / max(1, len(beyond) - int(beyond.sum()))
            ax.axhline(-np.log10(limit), color=now.faint, linestyle="--", linewidth=1.2)
        top = max(float(height.max()), 3.0)
        ax.set(xlim=(-0.7, len(place) - 0.3), ylim=(0, ROOM * top))
        powers = np.arange(0, top + 1e-9, max(1, round(top / 4)), dtype=int)
        ax.set_yticks(powers, [_chance(int(power)) for power in powers])
        if self.first_layer in self.names:
            at = self.names.index(self.first_layer)
            style.annotate(ax, "differs first", (at, float(height[at])), (0, 3), ha="center", color=now.ink)
        self._name_layers(ax, place)
        ax.grid(visible=False, axis="x")
        ax.set_ylabel("p-value of the layer")
        other = ax.twinx()
        other.spines[["top", "left", "bottom"]].set_visible(False)
        other.spines["right"].set_color(now.faint)
        other.tick_params(color=now.faint, labelcolor=now.ink, labelsize="small")
        line: dict[str, Any] = {"color": now.ink, "marker": "o", "markersize": 3, "linewidth": 1.2}
        other.plot(place, self.mean_shift, label="mean shift (right axis)", **line)
        ax.plot([], [], label="mean shift (right axis)", **line)  # only for the legend, which belongs to these axes
        other.set_ylim(0, ROOM * max(float(self.mean_shift.max()), 0.4))
        other.set_ylabel("mean shift (training std)", color=now.ink)
        style.headline(ax, self.title, self.summary)
        style.legend(ax, loc="upper center", ncols=3)
        return ax

    def _name_layers(self, ax: style.Axes, place: np.ndarray) -> None:
        """Label the layers with their names, or with numbers if there are many."""
        if len(place) > MOST_NAMES:
            step = max(1, round(len(place) / 10))
            ax.set_xticks(place[::step], [f"{number + 1}" for number in place[::step]])
            ax.set_xlabel(f"batch-norm layer in running order, {self.names[0]} to {self.names[-1]}")
            return
        short = [name if len(name) <= 24 else f"…{name[-23:]}" for name in self.names]
        slanted = max(map(len, short)) * len(short) > 60
        ax.set_xticks(place, short, rotation=35 if slanted else 0, ha="right" if slanted else "center")
        ax.set_xlabel("batch-norm layer in running order")


def _chance(power: int) -> str:
    """Return 10 to the power of -`power` as text."""
    return f"{10.0**-power:g}" if power <= 3 else f"1e−{power}"
