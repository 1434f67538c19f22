"""A plot of whether a classifier is sure of what it knows only: distributions of entropy (Atanov et al.)."""

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

TITLE = "Known inputs should rise early, strange ones late"


@dataclass(frozen=True)
class EntropyPlot:
    """Distributions of the predictive entropy of several sets of inputs.

    Args:
        entropy: Entropies in nats from 0 to the greatest possible, (points,).
        share: Share of each set's points with at most this entropy, by name; the first set is the known one.
        auroc: How well entropy tells each other set from the first one (1: always, 1/2: not at all), by name.
        title: Title, which says what one should see.
    """

    entropy: np.ndarray
    share: dict[str, np.ndarray]
    auroc: dict[str, float]
    title: str = TITLE

    @classmethod
    def of(cls, predictives: Mapping[str, ClassificationPredictive], title: str = TITLE) -> Self:
        """Compare predictions, by name of their inputs; those from the training distribution come first."""
        if not predictives:
            raise BayesNormError("predictives: is empty; at least one set of predictions would work.")
        found = {name: entropy_cdf(predictive) for name, predictive in predictives.items()}
        classes = {predictive.probs.shape[1] for predictive in predictives.values()}
        if len(classes) > 1:
            raise InputError(f"predictives: are of {sorted(classes)} classes; the same classes for all would work.")
        known, *others = predictives
        inside = predictives[known].entropy.detach().flatten()
        return cls(
            entropy=found[known].entropy.cpu().numpy(),
            share={name: curve.share.detach().cpu().numpy() for name, curve in found.items()},
            auroc={name: float(auroc(inside, predictives[name].entropy.detach().flatten())) for name in others},
            title=title,
        )

    @property
    def most(self) -> float:
        """The greatest possible entropy, ln(classes)."""
        return float(self.entropy[-1])

    @property
    def summary(self) -> str:
        """One line of text that says what was measured."""
        if not self.auroc:
            return ""
        return "AUROC of entropy: " + ", ".join(f"{name} {value:.3f}" for name, value in self.auroc.items())

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure."""
        ax, now = style.axes(ax), style.current()
        for number, (name, share) in enumerate(self.share.items()):
            look = now.look(number)
            ax.plot(self.entropy, share, color=look.colour, linestyle=look.stroke, linewidth=2.2, label=name)
        known, *others = self.share.values()
        for number, other in enumerate(others, start=1):
            colour = now.look(number).colour
            ax.fill_between(self.entropy, known, other, color=colour, alpha=0.08, linewidth=0)
        ax.axvline(self.most, color=now.faint, linewidth=1.0, linestyle=":")
        words = f"knows nothing: ln {round(math.exp(self.most))}"
        style.annotate(ax, words, (self.most, 0.02), (-4, 0), ha="right", fontstyle="italic")
        style.percent_axis(ax.yaxis)
        ax.set_xlim(0, 1.02 * self.most)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("entropy of the predictive (nats)")
        ax.set_ylabel("share of inputs with at most this entropy")
        style.headline(ax, self.title, self.summary)
        style.legend_below(ax, 4)
        return ax
