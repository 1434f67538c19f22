"""A plot of the distribution of predictive entropy inside and outside the training distribution (Atanov et al.)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ..errors import BayesNormError, InputError
from ..metrics import auroc, entropy_cdf
from ..predictive import ClassificationPredictive
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Entropy should be low in distribution and high outside of it"


@dataclass(frozen=True)
class EntropyPlot:
    """Cumulative distributions of the predictive entropy of several sets of inputs.

    Args:
        entropy: Entropies in nats from 0 to the largest possible, (points,).
        share: Share of each set's points with at most this entropy, by name; the first set is in distribution.
        auroc: AUROC of the entropy for separating each other set from the first (1: perfect, 1/2: chance), by name.
        title: The title.
    """

    entropy: np.ndarray
    share: dict[str, np.ndarray]
    auroc: dict[str, float]
    title: str = TITLE

    @classmethod
    def from_predictives(cls, predictives: Mapping[str, ClassificationPredictive], title: str = TITLE) -> Self:
        """Return the plot of predictions by name of their data set; the first is the in-distribution one."""
        if not predictives:
            raise BayesNormError("predictives is empty. Pass at least one set of predictions.")
        curves = {name: entropy_cdf(predictive) for name, predictive in predictives.items()}
        classes = {predictive.probs.shape[1] for predictive in predictives.values()}
        if len(classes) > 1:
            raise InputError(f"predictives must all have the same number of classes, got {sorted(classes)}.")
        reference, *others = predictives
        inside = predictives[reference].entropy.detach().flatten()
        return cls(
            entropy=curves[reference].entropy.cpu().numpy(),
            share={name: curve.share.detach().cpu().numpy() for name, curve in curves.items()},
            auroc={name: float(auroc(inside, predictives[name].entropy.detach().flatten())) for name in others},
            title=title,
        )

    @property
    def most(self) -> float:
        """The largest possible entropy, ln(classes)."""
        return float(self.entropy[-1])

    @property
    def summary(self) -> str:
        """The main result in one line."""
        if not self.auroc:
            return ""
        return "AUROC of predictive entropy: " + ", ".join(f"{name} {value:.3f}" for name, value in self.auroc.items())

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax), style.current()
        for number, (name, share) in enumerate(self.share.items()):
            look = now.look(number)
            ax.plot(self.entropy, share, color=look.colour, linestyle=look.stroke, linewidth=2.2, label=name)
        reference, *others = self.share.values()
        for number, other in enumerate(others, start=1):
            colour = now.look(number).colour
            ax.fill_between(self.entropy, reference, other, color=colour, alpha=0.08, linewidth=0)
        ax.axvline(self.most, color=now.faint, linewidth=1.0, linestyle=":")
        words = f"maximum: ln {round(math.exp(self.most))}"
        style.annotate(ax, words, (self.most, 0.02), (-4, 0), ha="right", fontstyle="italic")
        style.percent_axis(ax.yaxis)
        ax.set_xlim(0, 1.02 * self.most)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("predictive entropy (nats)")
        ax.set_ylabel("share of inputs with at most this entropy")
        style.headline(ax, self.title, self.summary)
        style.legend_below(ax, 4)
        return ax
