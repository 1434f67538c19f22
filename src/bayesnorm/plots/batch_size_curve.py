"""What the batch size does: the ELBO, its two parts, the doubt, and validation scores where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ..selection.batch_size import BatchSizeChoice
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class BatchSizeCurve:
    """What is drawn, each (sizes,).

    Args:
        batch_size: M.
        elbo: The bound, per training row relative to its best, in nats or thousandths as the axis says.
        validation: Mean validation score, lower is better, or None.
    """

    batch_size: np.ndarray
    elbo: np.ndarray
    validation: np.ndarray | None = None

    @classmethod
    def from_choice(cls, choice: BatchSizeChoice) -> Self:
        """The curves of `select_batch_size`."""
        elbo = np.array([row.elbo for row in choice.rows])
        validation = [row.validation for row in choice.rows]
        return cls(
            np.array([row.batch_size for row in choice.rows]),
            elbo - elbo.max(),
            None if None in validation else np.array(validation, dtype=float),
        )

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` (or a new figure); the best size of each curve is marked."""
        ax = style.axes(ax)
        ax.set_xscale("log", base=2)
        ax.set_xticks(self.batch_size, [f"{size:g}" for size in self.batch_size])
        ax.minorticks_off()
        ax.plot(self.batch_size, self.elbo, color=style.BLUE, marker="o", label="ELBO")
        best = int(self.elbo.argmax())
        ax.plot(self.batch_size[best], self.elbo[best], "o", ms=12, mfc="none", color=style.BLUE)
        ax.set_xlabel("batch size M")
        ax.set_ylabel("ELBO less its best (nats)", color=style.BLUE)
        if self.validation is not None:
            other = ax.twinx()
            other.spines[["top"]].set_visible(False)
            other.plot(self.batch_size, self.validation, color=style.VERMILION, marker="s", ls="--", label="validation")
            lowest = int(self.validation.argmin())
            other.plot(self.batch_size[lowest], self.validation[lowest], "s", ms=12, mfc="none", color=style.VERMILION)
            other.set_ylabel("validation score (lower is better)", color=style.VERMILION)
        return ax
