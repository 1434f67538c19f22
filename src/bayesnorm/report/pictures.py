"""The pictures of a report, each with its title and caption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from ..plots import (
    CalibrationPlot,
    CoveragePlot,
    EntropyPlot,
    Plot,
    ReliabilityDiagram,
    RetentionPlot,
    UncertaintyErrorPlot,
    style,
)
from .classification import ClassificationTest, one_draw
from .learning_curve import TIMES, LearningCurve
from .predicted_true import MOST_POINTS, PredictedTruePlot, ResidualPlot
from .regression import RegressionTest
from .themed_svg import themed_svg
from .words import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Width and height in inches: small enough that words stay legible on a phone.
SIZE = (4.7, 3.9)

# Number of rows from which the confidence of classes is parted into ten bins rather than five.
MANY = 500

# Fewest rows in a group of uncertainty.
GROUP = 25


Group = Literal["prediction", "uncertainty", "rows", "reasons", "drift"]


class TitledPlot(Plot, Protocol):
    """A plot that says what one should see in it."""

    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class PagePicture:
    """One of the page's pictures.

    Args:
        group: The section that it belongs to.
        title: Title, which says what one should see.
        svg: The picture as an `<svg>` element.
        caption: Text that says what it shows, and what was measured.
    """

    group: Group
    title: str
    svg: str
    caption: str


def pictures(test: RegressionTest | ClassificationTest) -> tuple[PagePicture, ...]:
    """Draw all pictures, in the order of the page."""
    return _regression(test) if isinstance(test, RegressionTest) else _classification(test)


def _regression(test: RegressionTest) -> tuple[PagePicture, ...]:
    level = percent(test.level)
    shown = f" {MOST_POINTS} of {len(test):,} rows are drawn." if len(test) > MOST_POINTS else ""
    error = test.y - test.mean
    calibration = CalibrationPlot.of_pit(test.pit)
    groups = max(2, min(6, len(test) // GROUP))
    coverage = CoveragePlot.of_arrays(test.std, test.inside, level=test.level, groups=groups)
    uncertainty = UncertaintyErrorPlot.of_arrays(error, test.std, test.constant_std)
    retention = RetentionPlot.of_arrays({"uncertainty": test.std}, np.abs(error), score="mean absolute error")
    return (
        page_picture(
            "prediction",
            PredictedTruePlot.from_test(test),
            f"Each point is a held-out row, the line through it its {level} interval; crosses lie outside.{shown}",
        ),
        page_picture(
            "prediction",
            ResidualPlot.from_test(test),
            "Points above the line were predicted too low, points below it too high. A bend or a slope would mean that "
            "the model misses something that its inputs could tell.",
        ),
        page_picture(
            "uncertainty",
            calibration,
            f"Below the diagonal the model is too sure, above it too cautious. Now: {calibration.summary}.",
        ),
        page_picture(
            "uncertainty",
            coverage,
            f"Rows in groups, from the least uncertainty to the most. Now: {coverage.summary}.",
        ),
        page_picture(
            "uncertainty",
            uncertainty,
            "Rows from the least uncertainty to the most. The bands are what the model expects of its errors, the dashed "
            f"lines what one error bar for all would. Now: {uncertainty.summary}.",
        ),
        page_picture(
            "uncertainty",
            retention,
            "Hand the most uncertain rows to an expert, and this is the error of the rest. The closer to the dotted "
            f"line, the better the uncertainty knows where errors are. {_gain(retention)}",
        ),
    )


def _classification(test: ClassificationTest) -> tuple[PagePicture, ...]:
    predictive = test.predictive()
    wrong = ~test.right
    reliability = ReliabilityDiagram.of(predictive, test.y, bins=10 if len(test) >= MANY else 5)
    retention = RetentionPlot.of_arrays(
        {"uncertainty": test.entropy}, wrong.astype(float), score="error rate", unit="%"
    )
    parts = {
        name: one_draw(test.probs[which]) for name, which in (("right", test.right), ("wrong", wrong)) if which.any()
    }
    entropy = EntropyPlot.of(parts, title="Mistakes should be uncertain more")
    return (
        page_picture(
            "uncertainty",
            reliability,
            "Rows grouped by how sure the model is. Below the diagonal it is too sure, above it too modest. "
            f"Now: right {percent(float(test.right.mean()), 1)}, sure {percent(float(test.confidence.mean()), 1)}.",
        ),
        page_picture(
            "uncertainty",
            entropy,
            "Share of rows with at most so much uncertainty. The farther the mistakes’ line lies to the right, the better.",
        ),
        page_picture(
            "uncertainty",
            retention,
            "Hand the most uncertain rows to an expert, and this is the error rate of the rest. The closer to the dotted "
            f"line, the better the uncertainty knows where errors are. {_gain(retention)}",
        ),
    )


def curve_picture(curve: LearningCurve | None) -> tuple[PagePicture, ...]:
    """Draw how the error falls with the number of rows; nothing where nobody looked."""
    if curve is None:
        return ()
    caption = (
        "Squares are single networks in cross-validation, with fewer rows and with all; the full circle is the "
        f"model on the rows that judge it. Dashed is what {TIMES[0]} and {TIMES[1]} times as many rows would bring."
    )
    if curve.floor > 0:
        caption += " The dotted line is noise that these columns do not explain, however many rows there are."
    return (page_picture("rows", curve, caption),)


def _gain(curve: RetentionPlot) -> str:
    """Say how much of the possible gain the uncertainty has."""
    ratio = curve.ratio["uncertainty"]
    return "" if ratio is None else f"Now: {percent(ratio)} of what a perfect order would gain."


def page_picture(group: Group, plot: TitledPlot, caption: str, prefix: str = "") -> PagePicture:
    """Draw a plot for a page; a prefix of its ids has to be given where the page has several of its kind."""
    svg = themed_svg(lambda: _draw(plot), f"{plot.title}. {caption}", prefix or type(plot).__name__)
    return PagePicture(group, plot.title, svg, caption)


def _draw(plot: Plot) -> Axes:
    """Draw the plot without its own headline, which the page says in words that wrap, and with its legend below."""
    figure = style.matplotlib().figure.Figure(figsize=SIZE, layout="constrained")
    ax = plot.draw(figure.add_subplot())
    ax.set_title("")
    for text in [text for text in ax.texts if text.get_gid() == style.DETAIL]:
        text.remove()
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return ax
