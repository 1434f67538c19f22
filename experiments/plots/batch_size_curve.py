"""A plot of the ELBO, and of validation scores if there are any, against the batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from bayesnorm.calibration import BatchSizeChoice
from bayesnorm.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "The best batch size has the highest ELBO"


@dataclass(frozen=True)
class BatchSizeCurve:
    """ELBO and validation score by batch size, each (sizes,).

    Args:
        batch_size: Batch sizes M.
        elbo: The evidence lower bound (ELBO) minus its maximum, in nats.
        validation: Mean validation score, lower is better, or None.
        title: The title.
    """

    batch_size: np.ndarray
    elbo: np.ndarray
    validation: np.ndarray | None = None
    title: str = TITLE

    @classmethod
    def from_choice(cls, choice: BatchSizeChoice, *, title: str = TITLE) -> Self:
        """Return the curves of a result of `select_batch_size`."""
        elbo = np.array([row.elbo for row in choice.rows])
        validation = [row.validation for row in choice.rows]
        return cls(
            np.array([row.batch_size for row in choice.rows]),
            elbo - elbo.max(),
            None if None in validation else np.array(validation, dtype=float),
            title,
        )

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` or a new figure, with the best size of each curve marked, and return the axes."""
        ax, now = style.axes(ax), style.current()
        ax.set_xscale("log", base=2)
        ax.set_xticks(self.batch_size, [f"{size:g}" for size in self.batch_size])
        ax.minorticks_off()
        lines = ax.plot(self.batch_size, self.elbo, color=now.model, marker="o", linewidth=2, label="ELBO")
        best = int(self.elbo.argmax())
        ax.plot(self.batch_size[best], self.elbo[best], "o", ms=13, mfc="none", mew=1.6, color=now.model)
        ax.set_xlabel("batch size M")
        ax.set_ylabel("ELBO minus its maximum (nats)")
        if self.validation is not None:
            other = ax.twinx()
            other.spines[["top", "left", "bottom"]].set_visible(False)
            other.spines["right"].set_color(now.faint)
            other.tick_params(color=now.faint, labelcolor=now.ink, labelsize="small")
            lines += other.plot(
                self.batch_size, self.validation, color=now.rival, marker="s", ls="--", linewidth=2, label="validation"
            )
            lowest = int(self.validation.argmin())
            other.plot(
                self.batch_size[lowest], self.validation[lowest], "s", ms=13, mfc="none", mew=1.6, color=now.rival
            )
            other.set_ylabel("validation score (lower is better)", color=now.ink)
            names = ["ELBO (left axis; marked: highest)", "validation score (right axis; marked: lowest)"]
            style.legend_below(ax, 2, handles=lines, labels=names)
        style.headline(ax, self.title)
        return ax
