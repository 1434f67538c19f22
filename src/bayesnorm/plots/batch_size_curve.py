"""A plot of the ELBO, and of validation scores where there are any, over the batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ..selection.batch_size import BatchSizeChoice
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "The best batch size is where the bound is highest"


@dataclass(frozen=True)
class BatchSizeCurve:
    """ELBO and validation score by batch size, each (sizes,).

    Args:
        batch_size: Batch sizes M.
        elbo: The bound less its best, in nats.
        validation: Mean validation score, lower is better, or None.
        title: Title, which says what one should see.
    """

    batch_size: np.ndarray
    elbo: np.ndarray
    validation: np.ndarray | None = None
    title: str = TITLE

    @classmethod
    def from_choice(cls, choice: BatchSizeChoice, *, title: str = TITLE) -> Self:
        """Take the curves from what `select_batch_size` returned."""
        elbo = np.array([row.elbo for row in choice.rows])
        validation = [row.validation for row in choice.rows]
        return cls(
            np.array([row.batch_size for row in choice.rows]),
            elbo - elbo.max(),
            None if None in validation else np.array(validation, dtype=float),
            title,
        )

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure; the best size of each curve is marked."""
        ax, now = style.axes(ax), style.current()
        ax.set_xscale("log", base=2)
        ax.set_xticks(self.batch_size, [f"{size:g}" for size in self.batch_size])
        ax.minorticks_off()
        lines = ax.plot(self.batch_size, self.elbo, color=now.model, marker="o", linewidth=2, label="ELBO")
        best = int(self.elbo.argmax())
        ax.plot(self.batch_size[best], self.elbo[best], "o", ms=13, mfc="none", mew=1.6, color=now.model)
        ax.set_xlabel("batch size M")
        ax.set_ylabel("ELBO less its best (nats)")
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
            names = ["ELBO (left; circled: highest)", "validation score (right; circled: lowest)"]
            style.legend_below(ax, 2, handles=lines, labels=names)
        style.headline(ax, self.title)
        return ax
