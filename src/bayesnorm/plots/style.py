"""One visual language: the Okabe-Ito colours, which colour-blind readers can tell apart."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingExtraError
from ..files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
)


def axes(ax: Axes | None, size: tuple[float, float] = (7.0, 4.3)) -> Axes:
    """The given axes, or those of a new figure, cleaned of needless lines."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'bayesnorm[plots]'.") from error
    if ax is None:
        ax = Figure(figsize=size, layout="constrained").add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def save_figure(ax: Axes, path: Path, dpi: int = 150) -> None:
    """Write the picture that `ax` belongs to as PNG, whole or not at all."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    write_bytes(path, buffer.getvalue())
