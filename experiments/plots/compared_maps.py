"""Maps of one image by several methods, with common colour scales."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

from bayesnorm.errors import BayesNormError
from bayesnorm.plots import CLASS_COLOURS, style
from bayesnorm.predictive import ClassificationPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VOID, RIGHT, WRONG = "#808080", "#EDEDED", style.BLACK


@dataclass(frozen=True)
class SegmentationMaps:
    """Maps of one image.

    Args:
        image: Red, green and blue from 0 to 1, (height, width, 3); or None for no image.
        label: True class of every pixel, -1 for no class, (height, width).
        prediction: Most probable class, (height, width).
        uncertainty: Entropy or mutual information of every pixel, in nats, (height, width).
        uncertainty_name: Name of this quantity.
        classes: Names of the classes.
        scale: Value of the brightest colour; None for the largest value of this map.
    """

    image: np.ndarray | None
    label: np.ndarray
    prediction: np.ndarray
    uncertainty: np.ndarray
    uncertainty_name: str
    classes: tuple[str, ...]
    scale: float | None = None

    @classmethod
    def from_predictive(
        cls,
        image: Tensor | None,
        predictive: ClassificationPredictive,
        y: Tensor,
        *,
        uncertainty: str,
        classes: Sequence[str],
        ignore_index: int,
    ) -> Self:
        """Return the maps of an image.

        Args:
            image: The image before normalisation, (3, height, width), with fractions up to 1. None leaves it out.
            predictive: Predictions of this image, (1, class, height, width).
            y: True classes, (height, width).
            uncertainty: "entropy" (predictive entropy: total), "mutual_information" (epistemic) or "expected_entropy"
                (aleatoric).
            classes: Names of the classes.
            ignore_index: Label of pixels without a class.
        """
        return cls(
            image=None if image is None else image.movedim(0, -1).numpy(),
            label=np.where(y.cpu() == ignore_index, -1, y.cpu()),
            prediction=predictive.label[0].cpu().numpy(),
            uncertainty=getattr(predictive, uncertainty)[0].detach().double().cpu().numpy(),
            uncertainty_name=uncertainty.replace("_", " "),
            classes=tuple(classes),
        )

    @property
    def panels(self) -> list[str]:
        """Names of the panels, from left to right."""
        image = [] if self.image is None else ["image"]
        return [*image, "label", "prediction", "errors", self.uncertainty_name]

    def show(self, ax: Axes, name: str) -> Any:
        """Draw one panel into axes, and return the drawn image."""
        if name == self.uncertainty_name:
            most = self.scale or float(self.uncertainty.max()) or float(np.log(len(self.classes)))
            return ax.imshow(self.uncertainty, cmap="magma", vmin=0, vmax=most, interpolation="nearest")
        return ax.imshow(self._panel(name), interpolation="nearest")

    def _panel(self, name: str) -> Any:
        """Return the colours of a panel: the image, the classes or the errors."""
        if name == "image":
            return self.image
        if name == "errors":
            return _rgb((RIGHT, WRONG, VOID))[np.where(self.label < 0, 2, self.label != self.prediction)]
        # -1, no class, selects the last colour.
        return _rgb((*_class_colours(len(self.classes)), VOID))[self.prediction if name == "prediction" else self.label]


def _class_colours(classes: int) -> list[str]:
    """Return the colours of classes; with many classes, colours repeat."""
    return list(itertools.islice(itertools.cycle(CLASS_COLOURS), classes))


def _rgb(colours: Sequence[str]) -> Any:
    """Return red, green and blue of every colour, from 0 to 1."""
    return style.matplotlib().colors.to_rgba_array(colours)[:, :3]


def name_classes(figure: Figure, maps: Sequence[SegmentationMaps]) -> None:
    """Draw a legend of the classes that occur in the maps, and of the colours of errors."""
    pixels = np.concatenate([part.ravel() for one in maps for part in (one.prediction, one.label)])
    present, colours = np.unique(pixels).tolist(), _class_colours(len(maps[0].classes))
    names = [(maps[0].classes[index], colours[index]) for index in present if index >= 0]
    names += [("not labelled", VOID)] * (-1 in present) + [("wrong", WRONG)]
    patch, ink = style.matplotlib().patches.Patch, style.current().ink
    handles = [patch(color=colour, label=name) for name, colour in names]
    look: dict[str, Any] = {"fontsize": "x-small", "frameon": False, "labelcolor": ink, "loc": "outside lower center"}
    figure.legend(handles=handles, ncols=min(len(names), 8), **look)


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
    method_panels = [name for name in first.panels if name in ("prediction", "errors")]
    columns = max(len(names), len(method_panels) + len(kinds))
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
        for ax, name in zip(line, method_panels, strict=False):
            images[0].show(ax, name)
            if name == "prediction":  # a method's name can be wider than the panel
                ax.set_title(method, color=ink, fontsize="small", fontweight="bold", loc="left")
            else:
                ax.set_title(name, color=ink, fontsize="small", loc="right")
        for ax, one in zip(line[len(method_panels) :], images, strict=False):
            shown = replace(one, scale=scales[one.uncertainty_name]).show(ax, one.uncertainty_name)
            ax.set_title(f"{one.uncertainty_name}, mean {one.uncertainty.mean():.3f}", color=ink, fontsize="small")
            bar = figure.colorbar(shown, ax=ax, shrink=0.8)
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelcolor=ink, labelsize="x-small")
    name_classes(figure, every)
    if title:
        figure.suptitle(title, color=ink, fontweight="bold")
    return figure
