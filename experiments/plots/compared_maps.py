"""Maps of one image by several methods, with common colour scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bayesnorm.errors import BayesNormError
from bayesnorm.plots import SegmentationMaps, style
from bayesnorm.plots.segmentation_maps import name_classes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_maps(maps: Mapping[str, Sequence[SegmentationMaps]], *, title: str = "") -> Figure:
    """Draw the maps of one image by several methods, one row per method, with one colour scale per quantity.

    Args:
        maps: For each method, maps of the image with different quantities, such as entropy and mutual information.
            Prediction and errors are drawn once per method, then each quantity. Image and label are in the first row.
        title: The title of the figure.
    """
    kinds = [one.uncertainty_name for one in next(iter(maps.values()), [])]
    if not kinds or any([one.uncertainty_name for one in images] != kinds for images in maps.values()):
        raise BayesNormError(
            "maps must have at least one method, and the same quantities (such as entropy) for all methods."
        )
    every = [one for images in maps.values() for one in images]
    first = every[0]
    scales = {
        kind: max(float(one.uncertainty.max()) for one in every if one.uncertainty_name == kind) for kind in kinds
    }
    names = [name for name in first.panels if name in ("image", "label")]
    own_panels = [name for name in first.panels if name in ("prediction", "errors")]
    columns = max(len(names), len(own_panels) + len(kinds))
    height, width = first.prediction.shape
    rows = len(maps) + bool(names)
    figure = style.new_figure((2.3 * columns + 0.6, (2.3 * height / width + 0.25) * rows + 0.8))
    grid = figure.subplots(rows, columns, squeeze=False)
    for ax in grid.flat:
        ax.set_axis_off()
    ink = style.current().ink
    for ax, name in zip(grid[0] if names else (), names, strict=False):
        first.show(ax, name)
        ax.set_title(name, color=ink, fontsize="small")
    for line, (method, images) in zip(grid[bool(names) :], maps.items(), strict=True):
        for ax, name in zip(line, own_panels, strict=False):
            images[0].show(ax, name)
            if name == "prediction":  # a method's name can be wider than the panel
                ax.set_title(method, color=ink, fontsize="small", fontweight="bold", loc="left")
            else:
                ax.set_title(name, color=ink, fontsize="small", loc="right")
        for ax, one in zip(line[len(own_panels) :], images, strict=False):
            shown = replace(one, scale=scales[one.uncertainty_name] or one.most).show(ax, one.uncertainty_name)
            ax.set_title(f"{one.uncertainty_name}, mean {one.uncertainty.mean():.3f}", color=ink, fontsize="small")
            bar = figure.colorbar(shown, ax=ax, shrink=0.8)
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelcolor=ink, labelsize="x-small")
    name_classes(figure, every, loc="outside lower center")
    if title:
        figure.suptitle(title, color=ink, fontweight="bold")
    return figure
