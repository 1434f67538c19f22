"""A reliability diagram: the accuracy of a classifier against its confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..metrics import classification_targets, reliability_curve
from ..predictive import ClassificationPredictive
from . import style
from .binomial import binomial_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Accuracy should equal confidence"
# The width of the number above a bar, in units of confidence.
ROOM = 0.035


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Accuracy and confidence of the bins that are not empty, each (bins,).

    Args:
        confidence: Mean probability of the predicted class.
        accuracy: Share of the bin's points whose predicted class is correct.
        count: Number of points in the bin.
        lower: Lower end of the 95 % range of accuracy by chance, if confidence is calibrated, for every bin.
        upper: Upper end of this range.
        ece: Expected calibration error.
        title: The title.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    ece: float
    title: str = TITLE

    @classmethod
    def from_predictive(
        cls,
        predictive: ClassificationPredictive,
        y: Any,
        *,
        bins: int = 15,
        adaptive: bool = False,
        ignore_index: int | None = None,
        title: str = TITLE,
    ) -> Self:
        """Return the diagram of predictions and true classes, per example or per pixel.

        Args:
            predictive: Predictions of classes.
            y: Class numbers, one per point.
            bins: Number of bins.
            adaptive: If True, bins have equally many points; if False, equal width.
            ignore_index: Label of points to leave out.
            title: The title.
        """
        curve = reliability_curve(predictive, y, bins=bins, adaptive=adaptive, ignore_index=ignore_index)
        points = int(classification_targets(predictive, y, ignore_index)[1].sum())
        share = curve.share.cpu().numpy()
        filled = share > 0
        confidence, accuracy = (part.detach().cpu().numpy()[filled] for part in (curve.confidence, curve.accuracy))
        count = (share[filled] * points).round().astype(int)
        lower, upper = binomial_band(count, np.minimum(confidence, 1.0))
        gap = float((np.abs(accuracy - confidence) * share[filled]).sum())
        return cls(confidence, accuracy, count, lower, upper, gap, title=title)

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

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax, style.SQUARE), style.current()
        share = self.count / self.count.sum()
        width = 0.8 * np.minimum(np.diff(self.confidence, prepend=-1.0), np.diff(self.confidence, append=2.0))
        width = np.clip(width, 0.008, 0.05)
        ax.bar(self.confidence, share, width=width, color=now.faint, alpha=0.28, label="share of points")
        ax.plot([0, 1], [0, 1], color=now.faint, linestyle="--", linewidth=1.2, label="calibrated")
        label = "explained by chance (95 %)"
        ax.vlines(self.confidence, self.lower, self.upper, color=now.faint, linewidth=1.4, alpha=0.7, label=label)
        ax.plot(self.confidence, self.accuracy, color=now.model, linewidth=1.2, alpha=0.45, zorder=2.8)
        off = (self.accuracy < self.lower) | (self.accuracy > self.upper)
        size = 20 + 60 * np.sqrt(share)
        for which, colour, marker, label in (
            (~off, now.model, "o", "accuracy"),
            (off, now.rival, "D", "accuracy outside this range"),
        ):
            if which.any():
                places = self.confidence[which], self.accuracy[which]
                ax.scatter(*places, s=size[which], color=colour, marker=marker, zorder=3, label=label, clip_on=False)
        last = -1.0
        behind = {"facecolor": now.background, "edgecolor": "none", "pad": 0.6}
        for x, height, number in zip(self.confidence, share, self.count, strict=True):
            if x - last < ROOM:  # it would overlap the one before
                continue
            last = x
            style.annotate(ax, f"{number:,}", (x, height), (0, 2), ha="center", fontsize="xx-small", bbox=behind)
        style.square_of_percents(ax, reach=1.02)
        ax.set_xlabel("confidence: probability of the predicted class")
        ax.set_ylabel("accuracy: share of correct points")
        style.headline(ax, self.title, self.summary)
        style.legend_below(ax, 2)
        return ax
