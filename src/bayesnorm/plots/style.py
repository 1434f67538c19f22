"""Light and dark themes in the Okabe-Ito colours, which colour-blind readers can distinguish.

A plot takes its colours from `current()` when it is drawn, and keeps them when it is saved later:

    with style.theme("dark"):
        ax = plot.draw()
    save_figure(ax, path)
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..errors import BayesNormError, load_package
from ..words import format_tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"

# Colours of the classes: Okabe and Ito's, then Tol's muted ones.
CLASS_COLOURS = (
    BLUE,
    ORANGE,
    GREEN,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    "#332288",
    "#882255",
    "#999933",
    "#44AA99",
    "#AA4499",
)

# Width and height of a single plot, in inches.
FIGURE = (7.0, 4.6)

# Width and height of a single plot with equal axes, in inches.
SQUARE = (5.6, 5.2)


class Plot(Protocol):
    """An object that can draw itself into axes."""

    def draw(self, ax: Axes | None = None) -> Axes: ...


class Look(NamedTuple):
    """Colour, line style and marker of a series; any one of the three identifies it."""

    colour: str
    stroke: str
    marker: str


@dataclass(frozen=True)
class Theme:
    """The colours of a plot.

    Args:
        name: "light" or "dark".
        paper: Colour of the background.
        ink: Colour of text.
        faint: Colour of axes, ticks and less important text.
        grid: Colour of grid lines.
        dots: Colour of single observations.
        model: Colour of the model: means, intervals and curves.
        backdrop: Colour of many thin lines in the background.
        rival: Colour of baselines and of errors.
        series: Colours of named series, the model's first.
        transparent: Whether figures have no background.
    """

    name: str
    paper: str
    ink: str
    faint: str
    grid: str
    dots: str
    model: str
    backdrop: str
    rival: str
    series: tuple[str, ...]
    transparent: bool = False

    def look(self, number: int) -> Look:
        """Return the look of a series by its number."""
        colour = self.series[number % len(self.series)]
        return Look(colour, STROKES[number % len(STROKES)], MARKERS[number % len(MARKERS)])

    @property
    def background(self) -> str:
        """The background colour of a figure."""
        return "none" if self.transparent else self.paper


STROKES = ("-", "--", "-.", ":")
MARKERS = "os^DvP"

THEMES = {
    "light": Theme(
        name="light",
        paper="#FFFFFF",
        ink="#1B1F23",
        faint="#5F6770",
        grid="#E4E7EA",
        dots="#6B737B",
        model=BLUE,
        backdrop=SKY,
        rival=VERMILION,
        series=(BLUE, ORANGE, GREEN, VERMILION, PURPLE, BLACK),
    ),
    # Blue and black are too dark on a dark background, so sky blue and yellow replace them.
    "dark": Theme(
        name="dark",
        paper="#15181C",
        ink="#E8EAED",
        faint="#9CA3AB",
        grid="#2B3036",
        dots="#A9B0B8",
        model=SKY,
        backdrop=BLUE,
        rival=VERMILION,
        series=(SKY, ORANGE, GREEN, VERMILION, PURPLE, YELLOW),
    ),
}

_CURRENT: ContextVar[Theme] = ContextVar("bayesnorm_theme", default=THEMES["light"])


def current() -> Theme:
    """Return the theme of plots that are drawn now."""
    return _CURRENT.get()


@contextmanager
def theme(name: str = "light", *, transparent: bool = False) -> Iterator[Theme]:
    """Use a theme for plots that are drawn inside the `with` block.

    Args:
        name: "light" or "dark".
        transparent: Whether to leave out the background, for pages with their own.
    """
    if name not in THEMES:
        raise BayesNormError(f"name must be {' or '.join(map(repr, THEMES))}, got {name!r}.")
    chosen = replace(THEMES[name], transparent=transparent)
    # Text that callers add (legends, figure titles) uses matplotlib's defaults.
    defaults = {
        "text.color": chosen.ink,
        "axes.labelcolor": chosen.ink,
        "axes.edgecolor": chosen.faint,
        "axes.facecolor": chosen.background,
        "figure.facecolor": chosen.background,
        "xtick.color": chosen.faint,
        "ytick.color": chosen.faint,
        "grid.color": chosen.grid,
    }
    token = _CURRENT.set(chosen)
    try:
        with matplotlib().rc_context(defaults):
            yield chosen
    finally:
        _CURRENT.reset(token)


def matplotlib() -> Any:
    """Import and return matplotlib, or raise an error that says how to install it."""
    for part in ("figure", "ticker", "transforms"):
        load_package(f"matplotlib.{part}", "plots need matplotlib: pip install matplotlib.")
    return sys.modules["matplotlib"]


def new_figure(size: tuple[float, float]) -> Figure:
    """Return a new figure of this width and height in inches, without a window."""
    figure: Figure = matplotlib().figure.Figure(figsize=size)
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.09)
    return figure


def axes(ax: Axes | None, size: tuple[float, float] = FIGURE) -> Axes:
    """Return the given axes, or those of a new figure, in the style of the current theme."""
    now = current()
    if ax is None:
        ax = new_figure(size).add_subplot()
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.set_facecolor(now.background)
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(now.faint)
    ax.tick_params(which="both", color=now.faint, labelcolor=now.ink, labelsize="small")
    for words in (ax.xaxis.label, ax.yaxis.label, ax.title, ax.xaxis.get_offset_text(), ax.yaxis.get_offset_text()):
        words.set_color(now.ink)
    for axis in (ax.xaxis, ax.yaxis):
        readable_axis(axis)
    ax.grid(color=now.grid, linewidth=0.7)
    ax.set_axisbelow(True)
    return ax


def headline(ax: Axes, title: str, detail: str = "") -> None:
    """Write the title and, below it in smaller type, the main result."""
    now = current()
    small = 0.833 * matplotlib().rcParams["font.size"]
    ax.set_title(title, color=now.ink, fontsize="medium", fontweight="bold", pad=7 + 1.5 * small if detail else 7)
    if detail:
        place = {"xycoords": "axes fraction", "annotation_clip": False}
        annotate(ax, detail, (0.5, 1.0), (0, 6), ha="center", gid=DETAIL, **place)


def annotate(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **options: Any) -> None:
    """Write small, faint text at an offset in points from a position."""
    settings = {"textcoords": "offset points", "va": "bottom", "color": current().faint, "fontsize": "small", **options}
    ax.annotate(text, at, offset, **settings)


# The id of the line below a title, by which a figure of several plots finds it.
DETAIL = "detail"


def legend(ax: Axes, **options: Any) -> None:
    """Draw a legend in the theme's text colour, without a frame, in front of the data."""
    now = current()
    settings = {"fontsize": "small", "labelcolor": now.ink, "facecolor": now.paper, "edgecolor": "none", **options}
    ax.legend(framealpha=0.0 if now.transparent else 0.8, **settings).set_zorder(6)


def legend_below(ax: Axes, columns: int, **options: Any) -> None:
    """Draw a legend below the axis label, for axes whose corners may all contain data."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    shift = matplotlib().transforms.ScaledTranslation(0, -38 / 72, figure.dpi_scale_trans)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": ax.transAxes + shift}
    legend(ax, ncols=columns, borderaxespad=0.0, columnspacing=1.4, handlelength=1.7, **place, **options)


def looks_by_chance(off: np.ndarray, label: str, label_off: str) -> Iterator[tuple[np.ndarray, str, str, str]]:
    """Yield a mask of points, their colour, marker and label: first those in their range by chance, then the others."""
    for which, colour, marker, name in ((~off, current().model, "o", label), (off, current().rival, "D", label_off)):
        if which.any():
            yield which, colour, marker, name


def finish(ax: Axes, title: str, detail: str, *, legend_columns: int) -> Axes:
    """Write the headline, draw the legend below the axes, and return the axes."""
    headline(ax, title, detail)
    legend_below(ax, legend_columns)
    return ax


def spread_out(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers 0 ... count - 1, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def without_formulas(text: str) -> str:
    """Return text without formulas, which a dollar sign would start."""
    return text.replace("$", r"\$")


def with_unit(what: str, unit: str | None) -> str:
    """Return an axis label with its unit, such as "absolute error (MPa)"."""
    return f"{what} ({unit})" if unit else what


def readable_axis(axis: Any) -> None:
    """Format the numbers of a linear axis with thousands separators, unless the axis has its own format."""

    def text(value: float, _: int) -> str:
        places = sorted(axis.get_majorticklocs())
        step = min((after - place for place, after in itertools.pairwise(places)), default=0.0)
        return format_tick(value, step, max(map(abs, places), default=0.0))

    if isinstance(axis.get_major_formatter(), matplotlib().ticker.ScalarFormatter):
        axis.set_major_formatter(text)


def percent_axis(axis: Any) -> None:
    """Show shares on an axis as percentages."""
    axis.set_major_formatter(lambda share, _: percent(share))


def square_of_percents(ax: Axes, reach: float = 1.0) -> None:
    """Show shares on both axes as percentages, at the same scale, from 0 to `reach`."""
    for axis in (ax.xaxis, ax.yaxis):
        percent_axis(axis)
    ax.set_xlim(0, reach)
    ax.set_ylim(0, reach)
    ax.set_aspect("equal", adjustable="box")


def percent(share: float) -> str:
    """Return a share as a percentage: 0.95 is "95 %"."""
    return f"{round(100 * share, 6):g} %"
