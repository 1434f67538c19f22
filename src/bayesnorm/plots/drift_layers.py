"""A plot of where in a network new rows differ from training rows: every batch-norm layer, in running order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..shift import LEVEL, Drift, holm
from . import style
from .readable_numbers import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Where in the network new rows differ"

# Layers up to which each is named.
MOST_NAMES = 16

# Chances below this are drawn as this one.
LEAST = 1e-12

# How much higher than the highest bar the picture is, for the legend.
ROOM = 1.3


@dataclass(frozen=True)
class DriftLayers:
    """What new rows do at each of L layers.

    Args:
        names: The layers, in running order, (L,).
        p_value: The chance that as many training rows differ so much there, (L,).
        mean_shift: How far channels' means moved, in their standard deviations in training, (L,).
        first_layer: The first layer where the rows differ beyond chance; None for rows like those of training.
        overall: The chance of so much over all layers.
        rows: How many new rows there are.
        title: Title, which says what one should see.
    """

    names: tuple[str, ...]
    p_value: np.ndarray
    mean_shift: np.ndarray
    first_layer: str | None
    overall: float
    rows: int
    title: str = TITLE

    @classmethod
    def from_drift(cls, drift: Drift, *, title: str = TITLE) -> Self:
        """Take what `bayesnorm.drift` found; of an ensemble, at the layers of its first member."""
        return cls(
            tuple(layer.name for layer in drift.layers),
            np.array([layer.p_value for layer in drift.layers]),
            np.array([layer.mean_shift for layer in drift.layers]),
            drift.first_layer,
            drift.p_value,
            drift.rows,
            title,
        )

    @property
    def summary(self) -> str:
        """One line of text that says what was measured."""
        rows = count(self.rows, "row")
        if self.overall >= LEVEL:
            return f"{rows}, like the training rows (p = {self.overall:.2g})"
        where = "" if self.first_layer is None else f", first at {self.first_layer}"
        return f"{rows}, unlike the training rows (p = {self.overall:.1g}){where}"

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure: bars for how rare, a line for how far."""
        ax, now = style.axes(ax), style.current()
        place = np.arange(len(self.names))
        height = -np.log10(np.clip(self.p_value, LEAST, 1.0))
        beyond = (holm(self.p_value) < LEVEL) & (self.overall < LEVEL)
        for which, colour, label in ((~beyond, now.model, "explained by chance"), (beyond, now.rival, "beyond chance")):
            if which.any():
                ax.bar(place[which], height[which], width=0.8, color=colour, label=label)
        if self.overall < LEVEL:  # below which chance a layer is beyond it, by Holm's rule
            limit = LEVEL / max(1, len(beyond) - int(beyond.sum()))
            ax.axhline(-np.log10(limit), color=now.faint, linestyle="--", linewidth=1.2)
        top = max(float(height.max()), 3.0)
        ax.set_ylim(0, ROOM * top)
        ax.set_xlim(-0.7, len(place) - 0.3)
        powers = np.arange(0, top + 1e-9, max(1, round(top / 4)), dtype=int)
        ax.set_yticks(powers, [_chance(int(power)) for power in powers])
        if self.first_layer in self.names:
            at = self.names.index(self.first_layer)
            style.annotate(ax, "first here", (at, float(height[at])), (0, 3), ha="center", color=now.ink)
        self._name_layers(ax, place)
        ax.grid(visible=False, axis="x")
        ax.set_ylabel("chance among training rows")
        other = ax.twinx()
        other.spines[["top", "left", "bottom"]].set_visible(False)
        other.spines["right"].set_color(now.faint)
        other.tick_params(color=now.faint, labelcolor=now.ink, labelsize="small")
        line: dict[str, Any] = {"color": now.ink, "marker": "o", "markersize": 3, "linewidth": 1.2}
        other.plot(place, self.mean_shift, label="shift (right)", **line)
        ax.plot([], [], label="shift (right)", **line)  # for the legend, which is of these axes
        other.set_ylim(0, ROOM * max(float(self.mean_shift.max()), 0.4))
        other.set_ylabel("shift of means (sd in training)", color=now.ink)
        style.headline(ax, self.title, self.summary)
        style.legend(ax, loc="upper center", ncols=3)
        return ax

    def _name_layers(self, ax: Axes, place: np.ndarray) -> None:
        """Name the layers, or number them where there are many."""
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
    """Write 10 to the power of minus a number."""
    if power == 0:
        return "1"
    return f"1 in {10**power:,}" if power <= 3 else f"1e−{power}"
