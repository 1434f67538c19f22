"""The pictures of a report, each with a title and a caption.

They are drawn once for light and dark pages: the style sheet sets their colours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol
from xml.sax.saxutils import quoteattr

import numpy as np

from ..plots import CalibrationPlot, EntropyPlot, Plot, RetentionPlot, UncertaintyErrorPlot, figure_svg, style
from ..words import format_decimals, format_percent
from .classification import ClassificationTest, one_sample
from .page_plots import MOST_POINTS, PredictedTruePlot, ResidualPlot
from .regression import RegressionTest
from .row_groups import Labels, RowGroups
from .verdict import LITTLE

# Width and height in inches: small enough that words stay legible on a phone.
SIZE = (4.7, 3.9)

# Names of what rows are ranked by.
BY_STD, BY_ENTROPY = "error bar", "entropy"

RETENTION = "Without the most uncertain rows, the error should fall"

NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")

Group = Literal["prediction", "uncertainty", "influence", "rows", "reasons", "drift"]


class TitledPlot(Plot, Protocol):
    """A plot with a title that says what to look for."""

    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class PagePicture:
    """One of the page's pictures.

    Args:
        group: The section that it belongs to.
        title: Title, which says what to look for.
        svg: The picture as an `<svg>` element.
        caption: Text that explains the picture and gives its main number.
    """

    group: Group
    title: str
    svg: str
    caption: str


def pictures(test: RegressionTest | ClassificationTest, labels: Labels | None = None) -> tuple[PagePicture, ...]:
    """Draw all pictures, in the order of the page.

    Args:
        test: The held-out rows.
        labels: The categories of each row, by the name of their column.
    """
    groups = RowGroups.from_test(test, labels)
    return _regression(test, groups) if isinstance(test, RegressionTest) else _classification(test, groups)


def _regression(test: RegressionTest, groups: RowGroups) -> tuple[PagePicture, ...]:
    level = format_percent(test.level)
    shown = f" The picture shows {MOST_POINTS} of {len(test):,} rows." if len(test) > MOST_POINTS else ""
    error = test.y - test.mean
    calibration = CalibrationPlot.from_pit(test.pit, title="Intervals should contain as many targets as they promise")
    uncertainty = UncertaintyErrorPlot.from_arrays(
        error, test.std, test.constant_std, title="Large error bars should come with large errors"
    )
    related = ""
    if uncertainty.rank_correlation is not None:
        correlation = format_decimals(uncertainty.rank_correlation, 2)
        related = f"The rank correlation of error bar and error is {correlation} (1: perfect, 0: no relation)."
    retention = RetentionPlot.from_arrays(
        {BY_STD: test.std}, np.abs(error), score="mean absolute error", title=RETENTION
    )
    return (
        page_picture(
            "prediction",
            PredictedTruePlot.from_test(test),
            f"Each point is a held-out row. The line through it is its {level} interval. Crosses mark targets outside "
            f"their interval.{shown}",
        ),
        page_picture(
            "prediction",
            ResidualPlot.from_test(test),
            "Points above the line were predicted too low, points below it too high. A bend or a slope would mean that "
            "the model misses a pattern in the inputs.",
        ),
        page_picture(
            "uncertainty",
            calibration,
            "The line shows how many targets are inside intervals of every probability. Below the diagonal the error "
            "bars are too narrow, above it too wide. The mean distance from the diagonal is "
            f"{format_decimals(100 * calibration.mean_gap, 1)} percentage points.",
        ),
        page_picture(
            "uncertainty",
            groups.drawn,
            "Rows are grouped from small to large error bars. In the grey range, deviations are explained by chance: "
            "honest error bars keep all groups of rows within their range in 95 % of reports. Overall, "
            f"{format_percent(float(test.inside.mean()), 1)} of the targets are inside. {groups.drawn_words}",
        ),
        page_picture(
            "uncertainty",
            uncertainty,
            "Rows are ordered from small to large error bars. The bands show the errors that the model expects; the "
            f"dashed lines show them for one constant error bar. {related}",
        ),
        page_picture(
            "uncertainty",
            retention,
            "If an expert handles the rows with the largest error bars, this is the error of the remaining rows. The "
            f"closer to the dotted line, the better the error bars find large errors. {_gain(retention, BY_STD)}",
        ),
    )


def _classification(test: ClassificationTest, groups: RowGroups) -> tuple[PagePicture, ...]:
    wrong = ~test.right
    retention = RetentionPlot.from_arrays(
        {BY_ENTROPY: test.entropy}, wrong.astype(float), score="error rate", unit="%", title=RETENTION
    )
    parts = {
        name: one_sample(test.probs[which]) for name, which in (("right", test.right), ("wrong", wrong)) if which.any()
    }
    entropy = EntropyPlot.from_predictives(parts, title="Mistakes should have more uncertainty")
    return (
        page_picture(
            "uncertainty",
            groups.drawn,
            "Rows are grouped by the probability of the predicted class. Below the diagonal the probabilities are too "
            "high, above it too low. The vertical lines show what chance explains: honest probabilities keep all "
            f"groups within them in 95 % of reports. Overall, {format_percent(float(test.right.mean()), 1)} of the "
            f"rows are right, and the mean probability is {format_percent(float(test.confidence.mean()), 1)}. "
            f"{groups.drawn_words}",
        ),
        page_picture(
            "uncertainty",
            entropy,
            "Each line shows the share of rows with at most this much uncertainty (entropy). The farther the line of "
            "the mistakes lies to the right, the better.",
        ),
        page_picture(
            "uncertainty",
            retention,
            "If an expert handles the most uncertain rows, this is the error rate of the remaining rows. The closer to "
            f"the dotted line, the better the uncertainty finds mistakes. {_gain(retention, BY_ENTROPY)}",
        ),
    )


def _gain(curve: RetentionPlot, name: str) -> str:
    """Say how good the ranking is."""
    ratio = curve.ratio[name]
    if ratio is None:
        return ""
    small = ", which is little" if ratio < LITTLE else ""
    return f"This ranking achieves {format_percent(ratio)} of a perfect ranking{small}."


def page_picture(group: Group, plot: TitledPlot, caption: str, prefix: str = "") -> PagePicture:
    """Draw a plot for a page. If the page has several plots of one kind, each needs another prefix for its ids."""
    svg = themed_svg(lambda: _draw(plot), f"{plot.title}. {caption}", prefix or type(plot).__name__)
    return PagePicture(group, plot.title, svg, caption)


def _draw(plot: Plot) -> style.Axes:
    """Draw the plot with its legend below, and without its headline, which the page prints as text that wraps."""
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


def themed_svg(draw: Callable[[], style.Axes], label: str, prefix: str) -> str:
    """Return the picture as an `<svg>` element whose colours are CSS variables, which `colour_variables` sets.

    Args:
        draw: Function that draws the picture in the current theme.
        label: Description of the picture for screen readers.
        prefix: Text at the start of its ids.
    """
    with style.theme("light", transparent=True):
        axes = draw()
        text = figure_svg(axes, prefix=prefix)
    themed = _light_to_dark()
    text = COLOUR.sub(lambda match: f"var(--{match[0][1:].lower()})" if match[0].lower() in themed else match[0], text)
    described = f"aria-label={quoteattr(label)}{axes_of_picture(axes)}"
    return re.sub(r'aria-label="[^"]*"', lambda _: described, text, count=1)


def axes_of_picture(ax: style.Axes) -> str:
    """Return an attribute with the place of the axes in a drawn picture and their numbers, for `pictures.js`."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = (72 * inches for inches in figure.get_size_inches())
    place = ax.get_position()
    box = [place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height]
    axes: dict[str, object] = {"box": [round(float(edge), 2) for edge in box]}
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        start, end = axis.get_view_interval()
        words = [
            (float(tick), text.get_text())
            for tick, text in zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
        ]
        percent = any("%" in text for _, text in words)
        axes[name] = {
            "name": axis.get_label_text().replace("\n", " "),
            "from": float(start),
            "to": float(end),
            "log": axis.get_scale() == "log",
            "factor": 100 if percent else 1,
            "unit": " %" if percent else "",
            "words": [] if _are_numbers(words) else [word for word in words if start <= word[0] <= end],
        }
    return f" data-axes={quoteattr(json.dumps(axes))}"


def _are_numbers(words: list[tuple[float, str]]) -> bool:
    """Return whether the labels of ticks are their places, apart from a factor; otherwise they are names."""
    ratios = []
    for place, text in words:
        match = NUMBER.match(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))
        if match is None:
            return False
        if place and float(match[0]):
            ratios.append(float(match[0]) / place)
    return bool(ratios) and min(ratios) > 0 and max(ratios) < 1.1 * min(ratios)


def colour_variables(theme: str) -> str:
    """Return CSS declarations of the variables for "light" or "dark"."""
    pairs = _light_to_dark().items()
    return "".join(f"--{light[1:]}:{light if theme == 'light' else dark};" for light, dark in pairs)


def _light_to_dark() -> dict[str, str]:
    """Return the dark colour for every light one."""
    light, dark = style.THEMES["light"], style.THEMES["dark"]
    names = ("ink", "faint", "grid", "dots", "model", "backdrop", "rival", "paper")
    pairs = [(getattr(light, name), getattr(dark, name)) for name in names]
    pairs += list(zip(light.series, dark.series, strict=True))
    return {one.lower(): other.lower() for one, other in reversed(pairs)}
