"""Plots of classifiers: reliability diagram, and predictive entropy in and outside the training distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..errors import BayesNormError, InputError
from ..metrics import auroc, classification_targets, entropy_cdf, reliability_curve
from ..predictive import ClassificationPredictive
from . import style
from .calibration import BY_CHANCE, binomial_band

RELIABILITY_TITLE = "Accuracy should equal confidence"
ENTROPY_TITLE = "Entropy should be low in distribution and high outside of it"

# The width of the number above a bar, in units of confidence.
ROOM = 0.035


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Accuracy and confidence of the bins that are not empty, each (bins,).

    Args:
        confidence: Mean probability of the predicted class.
        accuracy: Share of the bin's points whose predicted class is correct.
        count: Number of points in the bin.
        lower, upper: Ends of the 95 % range of accuracy by chance, if confidence is calibrated, for every bin.
        ece: Expected calibration error.
        title: The title.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    ece: float
    title: str = RELIABILITY_TITLE

    @classmethod
    def from_predictive(
        cls, predictive: ClassificationPredictive, y: Any, *, title: str = RELIABILITY_TITLE, **binning: Any
    ) -> Self:
        """Return the diagram of predictions and true classes, per example or per pixel.

        Args:
            predictive: Predictions of classes.
            y: Class numbers, one per point.
            title: The title.
            **binning: `bins`, `adaptive` and `ignore_index` of `metrics.reliability_curve`.
        """
        curve = reliability_curve(predictive, y, **binning)
        points = int(classification_targets(predictive, y, binning.get("ignore_index"))[1].sum())
        share = curve.share.cpu().numpy()
        filled = share > 0
        confidence, accuracy = (part.detach().cpu().numpy()[filled] for part in (curve.confidence, curve.accuracy))
        count = (share[filled] * points).round().astype(int)
        lower, upper = binomial_band(count, np.minimum(confidence, 1.0))
        gap = float((np.abs(accuracy - confidence) * share[filled]).sum())
        return cls(confidence, accuracy, count, lower, upper, gap, title=title)

    @property
    def off(self) -> np.ndarray:
        """Mask of the bins outside their range by chance."""
        return (self.accuracy < self.lower) | (self.accuracy > self.upper)

    @property
    def summary(self) -> str:
        """The main result in one line."""
        total = self.count.sum()
        right, sure = (float((part * self.count).sum() / total) for part in (self.accuracy, self.confidence))
        return f"{self.brief}; accuracy {right:.1%}, mean confidence {sure:.1%}".replace("%", " %")

    @property
    def brief(self) -> str:
        """The main number, for small panels."""
        return f"ECE {self.ece:.3f}"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax, style.SQUARE), style.current()
        share = self.count / self.count.sum()
        width = 0.8 * np.minimum(np.diff(self.confidence, prepend=-1.0), np.diff(self.confidence, append=2.0))
        ax.bar(
            self.confidence, share, width=width.clip(0.008, 0.05), color=now.faint, alpha=0.28, label="share of points"
        )
        ax.plot([0, 1], [0, 1], color=now.faint, linestyle="--", linewidth=1.2, label="calibrated")
        band: dict[str, Any] = {"color": now.faint, "linewidth": 1.4, "alpha": 0.7, "label": BY_CHANCE}
        ax.vlines(self.confidence, self.lower, self.upper, **band)
        ax.plot(self.confidence, self.accuracy, color=now.model, linewidth=1.2, alpha=0.45, zorder=2.8)
        size = 20 + 60 * np.sqrt(share)
        for which, colour, marker, label in style.looks_by_chance(self.off, "accuracy", "accuracy outside this range"):
            dots: dict[str, Any] = {"s": size[which], "color": colour, "marker": marker, "label": label}
            ax.scatter(self.confidence[which], self.accuracy[which], zorder=3, clip_on=False, **dots)
        last = -1.0
        behind = {"facecolor": now.background, "edgecolor": "none", "pad": 0.6}
        for x, height, number in zip(self.confidence, share, self.count, strict=True):
            if x - last >= ROOM:  # otherwise it would overlap the one before
                last = x
                style.annotate(ax, f"{number:,}", (x, height), (0, 2), ha="center", fontsize="xx-small", bbox=behind)
        style.square_of_percents(ax, reach=1.02)
        ax.set(xlabel="confidence: probability of the predicted class", ylabel="accuracy: share of correct points")
        return style.finish(ax, self.title, self.summary, legend_columns=2)


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
    title: str = ENTROPY_TITLE

    @classmethod
    def from_predictives(cls, predictives: Mapping[str, ClassificationPredictive], title: str = ENTROPY_TITLE) -> Self:
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
        values = ", ".join(f"{name} {value:.3f}" for name, value in self.auroc.items())
        return f"AUROC of predictive entropy: {values}" if values else ""

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax), style.current()
        reference = next(iter(self.share.values()))
        for number, (name, share) in enumerate(self.share.items()):
            look = now.look(number)
            ax.plot(self.entropy, share, color=look.colour, linestyle=look.stroke, linewidth=2.2, label=name)
            if number:
                ax.fill_between(self.entropy, reference, share, color=look.colour, alpha=0.08, linewidth=0)
        ax.axvline(self.most, color=now.faint, linewidth=1.0, linestyle=":")
        words = f"maximum: ln {round(math.exp(self.most))}"
        style.annotate(ax, words, (self.most, 0.02), (-4, 0), ha="right", fontstyle="italic")
        style.percent_axis(ax.yaxis)
        ax.set(xlim=(0, 1.02 * self.most), ylim=(0, 1.02))
        ax.set(xlabel="predictive entropy (nats)", ylabel="share of inputs with at most this entropy")
        return style.finish(ax, self.title, self.summary, legend_columns=4)
