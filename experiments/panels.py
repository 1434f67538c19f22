"""Make figures with several panels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesnorm.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL = (5.4, 4.4)
"""Size of one panel in inches."""


def panels(rows: int, columns: int, size: tuple[float, float] = PANEL) -> list[list[Axes]]:
    """Return the axes of a new figure, row by row; `size` is the width and height of one panel in inches."""
    figure = style.new_figure((size[0] * columns, size[1] * rows))
    numbers = range(1, rows * columns + 1)
    axes = [style.axes(figure.add_subplot(rows, columns, number)) for number in numbers]
    return [axes[start : start + columns] for start in range(0, rows * columns, columns)]


def set_figure_title(ax: Axes, title: str) -> None:
    """Put a title above the whole figure of some axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.suptitle(title)
