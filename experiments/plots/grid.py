"""Several plots in one figure, with a common legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bayesnorm.arguments import require_whole
from bayesnorm.errors import BayesNormError
from bayesnorm.plots import Plot, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_grid(
    plots: Mapping[str, Plot] | Sequence[Plot],
    columns: int = 4,
    *,
    title: str = "",
    size: tuple[float, float] = (3.3, 2.6),
) -> Figure:
    """Draw plots in a grid, and return the figure.

    There is one legend for all panels. Axis labels that are the same for all panels appear only at the figure's edge.

    Args:
        plots: Plots by name, which becomes the panel's title, with the plot's main number below; or a sequence, whose
            panels keep their own titles.
        columns: The largest number of panels in a row.
        title: The title of the figure.
        size: Width and height of one panel in inches.
    """
    if not plots:
        raise BayesNormError("plots is empty. Pass at least one plot.")
    columns = require_whole("columns", columns)
    names: Sequence[str | None] = [None] * len(plots)
    if isinstance(plots, Mapping):
        names, plots = list(plots), list(plots.values())
    columns = min(columns, len(plots))
    rows = -(-len(plots) // columns)
    with style.matplotlib().rc_context({"font.size": 8.5, "lines.markersize": 4.0}):
        figure = style.new_figure((size[0] * columns, size[1] * rows + 0.6))
        panels = [figure.add_subplot(rows, columns, number + 1) for number in range(len(plots))]
        for ax, plot, name in zip(panels, plots, names, strict=True):
            plot.draw(ax)
            if name is not None:
                _rename(ax, name, getattr(plot, "brief", ""))
        _share_legend(figure, panels)
        _share_labels(panels, columns)
        if title:
            figure.suptitle(title, color=style.current().ink, fontsize="x-large", fontweight="bold")
    return figure


def _rename(ax: Axes, name: str, brief: str) -> None:
    """Replace the title by the name, and the line below by the main number, because a panel is small."""
    for text in [text for text in ax.texts if text.get_gid() == style.DETAIL]:
        text.remove()
    style.headline(ax, name, brief)


def _share_legend(figure: Figure, panels: list[Axes]) -> None:
    """Replace the legends of the panels by one for the figure."""
    entries: dict[str, Artist] = {}
    for ax in panels:
        shown = ax.get_legend()
        if shown is not None:
            shown.remove()
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=max(1, min(len(entries), int(figure.get_figwidth() / (0.07 * max(map(len, entries)) + 0.6)))),
            frameon=False,
            labelcolor=style.current().ink,
        )


def _share_labels(panels: list[Axes], columns: int) -> None:
    """Remove axis labels inside the figure if they are the same for all panels."""
    if len({ax.get_xlabel() for ax in panels}) == 1:
        for ax in panels[:-columns]:
            ax.set_xlabel("")
    if len({ax.get_ylabel() for ax in panels}) == 1:
        for number, ax in enumerate(panels):
            if number % columns:
                ax.set_ylabel("")
