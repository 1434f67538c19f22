"""A plot of a segmented image: image, label, prediction, errors and entropy or mutual information, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from ..arguments import require_positive
from ..errors import BayesNormError, InputError
from ..metrics import auroc
from ..predictive import ClassificationPredictive
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "High values should lie on object borders and on errors"
DOUBTS = {
    "entropy": "predictive entropy",
    "mutual_information": "mutual information",
    "expected_entropy": "expected entropy",
}

# Colours of the classes: Okabe and Ito's, then Tol's muted ones.
CLASS_COLOURS = (
    style.BLUE,
    style.ORANGE,
    style.GREEN,
    style.PURPLE,
    style.SKY,
    style.VERMILION,
    style.YELLOW,
    "#332288",
    "#882255",
    "#999933",
    "#44AA99",
    "#AA4499",
)

VOID, RIGHT, WRONG = "#808080", "#EDEDED", style.BLACK
# Bottom and height of the panels within the axes.
BOX = (0.18, 0.74)


@dataclass(frozen=True)
class SegmentationMaps:
    """Maps of one image.

    Args:
        image: Red, green and blue from 0 to 1, (height, width, 3); or None for no image.
        label: True class of every pixel, -1 for no class, (height, width); or None.
        prediction: Most probable class, (height, width).
        uncertainty: Entropy or mutual information of every pixel, in nats, (height, width).
        uncertainty_name: Name of this quantity.
        most: The largest possible value, ln(classes).
        classes: Names of the classes.
        title: The title.
        scale: Value of the brightest colour; None for the largest value of this map.
    """

    image: np.ndarray | None
    label: np.ndarray | None
    prediction: np.ndarray
    uncertainty: np.ndarray
    uncertainty_name: str
    most: float
    classes: tuple[str, ...]
    title: str = TITLE
    scale: float | None = None

    @classmethod
    def from_predictive(
        cls,
        image: Any,
        predictive: ClassificationPredictive,
        y: Any = None,
        *,
        row: int = 0,
        uncertainty: Literal["entropy", "mutual_information", "expected_entropy"] = "entropy",
        classes: Sequence[str] | None = None,
        ignore_index: int | None = None,
        title: str = TITLE,
        scale: float | None = None,
    ) -> Self:
        """Return the maps of one image of a batch.

        Args:
            image: The image before normalisation: (height, width, 3), (height, width) or (3, height, width), with
                whole numbers up to 255 or fractions up to 1. None leaves it out.
            predictive: Predictions of a batch of images, (batch, class, height, width).
            y: True classes of the batch, (batch, height, width), or of this image, (height, width).
            row: Index of the image in the batch.
            uncertainty: "entropy" (predictive entropy: total), "mutual_information" (epistemic) or "expected_entropy"
                (aleatoric).
            classes: Names of the classes.
            ignore_index: Label of pixels without a class, in addition to the likelihood's.
            title: The title.
            scale: Value in nats of the brightest colour. Use the same for maps to compare.
                [default: the largest value of this map]
        """
        if not isinstance(predictive, ClassificationPredictive) or predictive.probs.dim() != 4:
            raise InputError(
                "predictive must be class probabilities of every pixel, (batch, class, height, width), got a "
                f"{type(predictive).__name__} of shape {tuple(predictive.mean.shape)}."
            )
        batch, number, height, width = predictive.probs.shape
        if uncertainty not in DOUBTS:
            raise BayesNormError(f"uncertainty must be {' or '.join(map(repr, DOUBTS))}, got {uncertainty!r}.")
        if not -batch <= row < batch:
            raise BayesNormError(f"row must be from 0 to {batch - 1} for {batch} images, got {row}.")
        if classes is not None and len(classes) != number:
            raise BayesNormError(f"classes must have {number} names, one per class, got {len(classes)}.")
        return cls(
            image=None if image is None else _picture(image, height, width),
            label=None if y is None else _label(y, row, predictive, ignore_index),
            prediction=predictive.label[row].cpu().numpy(),
            uncertainty=getattr(predictive, uncertainty)[row].detach().double().cpu().numpy(),
            uncertainty_name=DOUBTS[uncertainty],
            most=float(np.log(number)),
            classes=tuple(classes or (f"class {index}" for index in range(number))),
            title=title,
            scale=None if scale is None else require_positive("scale", scale),
        )

    @property
    def wrong(self) -> np.ndarray | None:
        """Mask of the labelled pixels with a wrong prediction; None without labels."""
        return None if self.label is None else (self.label >= 0) & (self.label != self.prediction)

    @property
    def summary(self) -> str:
        """The main result in one line."""
        if self.label is None or self.wrong is None:
            return f"mean {self.uncertainty_name} {self.uncertainty.mean():.2f} nats"
        right = (self.label >= 0) & ~self.wrong
        if not (right.any() and self.wrong.any()):
            all_are = "all labelled pixels are correct" if right.any() else "all labelled pixels are wrong"
            outcome = all_are if right.any() or self.wrong.any() else "no pixel is labelled"
            return f"mean {self.uncertainty_name} {self.uncertainty.mean():.2f} nats; {outcome}"
        area = float(auroc(self.uncertainty[right], self.uncertainty[self.wrong]))
        return (
            f"mean {self.uncertainty_name}: {self.uncertainty[self.wrong].mean():.2f} nats at wrong pixels, "
            f"{self.uncertainty[right].mean():.2f} nats at correct ones; AUROC {area:.2f}"
        )

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw the panels side by side into `ax` or a new figure, and return the axes."""
        panels = self.panels
        height, width = self.prediction.shape
        inch = 3.0
        size = (inch * len(panels) + 0.7, inch * height / width / BOX[1] + 0.4)
        ax, now = style.axes(ax, size), style.current()
        ax.set_axis_off()
        gap = 0.012
        shown: Any = None
        share = (1 - 0.045 - gap * (len(panels) - 1)) / len(panels)
        for number, name in enumerate(panels):
            panel = ax.inset_axes((number * (share + gap), BOX[0], share, BOX[1]))
            panel.set_axis_off()
            panel.set_title(name, color=now.ink, fontsize="small", pad=4)
            drawn = self.show(panel, name)
            shown = drawn if name == self.uncertainty_name else shown
        bar = ax.inset_axes((1 - 0.04, BOX[0] + 0.03, 0.011, BOX[1] - 0.06))
        scale = bar.figure.colorbar(shown, cax=bar)
        scale.outline.set_visible(False)
        bar.tick_params(color=now.faint, labelcolor=now.ink, labelsize="x-small")
        bar.set_title("nats", color=now.ink, fontsize="x-small", pad=4)
        name_classes(ax, [self], loc="upper center", bbox_to_anchor=(0.5, BOX[0] - 0.01))
        style.headline(ax, self.title, self.summary)
        return ax

    @property
    def panels(self) -> list[str]:
        """Names of the panels, from left to right."""
        labelled = self.label is not None
        return [
            *(["image"] if self.image is not None else []),
            *(["label"] if labelled else []),
            "prediction",
            *(["errors"] if labelled else []),
            self.uncertainty_name,
        ]

    def show(self, ax: Axes, name: str) -> Any:
        """Draw one panel into axes, and return the drawn image."""
        if name == self.uncertainty_name:
            most = self.scale or float(self.uncertainty.max()) or self.most
            return ax.imshow(self.uncertainty, cmap="magma", vmin=0, vmax=most, interpolation="nearest")
        return ax.imshow(self._panel(name), interpolation="nearest")

    def _panel(self, name: str) -> np.ndarray:
        """Return the colours of a panel: the image, the classes or the errors."""
        from matplotlib.colors import to_rgb

        if name == "image":
            assert self.image is not None
            return self.image
        if name == "errors":
            assert self.label is not None
            colours = np.array([to_rgb(colour) for colour in (RIGHT, WRONG, VOID)])
            return colours[np.where(self.label < 0, 2, self.label != self.prediction)]
        colours = np.array(
            [to_rgb(CLASS_COLOURS[index % len(CLASS_COLOURS)]) for index in range(len(self.classes))] + [to_rgb(VOID)]
        )
        shown = self.prediction if name == "prediction" else self.label
        assert shown is not None
        return colours[shown]  # -1, no class, selects the last colour


def name_classes(place: Axes | Figure, maps: Sequence[SegmentationMaps], **options: Any) -> None:
    """Draw a legend of the classes that occur in the maps, and of the colours of errors."""
    from matplotlib.patches import Patch

    parts = [part for one in maps for part in (one.prediction, one.label) if part is not None]
    classes_present = set().union(*(np.unique(part).tolist() for part in parts))
    names = [
        Patch(color=CLASS_COLOURS[index % len(CLASS_COLOURS)], label=maps[0].classes[index])
        for index in sorted(classes_present - {-1})
    ]
    if -1 in classes_present:
        names.append(Patch(color=VOID, label="not labelled"))
    if any(one.label is not None for one in maps):
        names.append(Patch(color=WRONG, label="wrong"))
    place.legend(
        handles=names,
        ncols=min(len(names), 8),
        fontsize="x-small",
        frameon=False,
        labelcolor=style.current().ink,
        **options,
    )


def _picture(image: Any, height: int, width: int) -> np.ndarray:
    """Return the image as (height, width, 3) fractions, or raise an error."""
    try:
        values = image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
        picture = values.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"image must be an array of numbers of shape (height, width, 3), got {type(image).__name__}."
        ) from error
    if picture.shape == (3, height, width):
        picture = np.moveaxis(picture, 0, -1)
    elif picture.shape == (height, width):
        picture = np.repeat(picture[..., None], 3, axis=-1)
    if picture.shape != (height, width, 3):
        raise InputError(
            f"image must have shape ({height}, {width}, 3), the size of the predictions, got {picture.shape}."
        )
    if np.issubdtype(values.dtype, np.integer):
        picture = picture / 255
    if not (np.isfinite(picture).all() and picture.min() >= 0 and picture.max() <= 1):
        raise InputError(
            "image must have colours from 0 to 1, or whole numbers from 0 to 255, before any normalisation, got values "
            f"from {picture.min():g} to {picture.max():g}."
        )
    return picture


def _label(y: Any, row: int, predictive: ClassificationPredictive, ignore_index: int | None) -> np.ndarray:
    """Return the true classes of one image, -1 for pixels without a class, or raise an error."""
    shape, classes = tuple(predictive.label.shape), predictive.probs.shape[1]
    label = np.asarray(y.cpu() if isinstance(y, torch.Tensor) else y)
    if label.shape == shape:
        label = label[row]
    if label.shape != shape[1:]:
        raise InputError(f"y must have shape {shape} or {shape[1:]}, got {label.shape}.")
    label = label.astype(int)  # unsigned types have no -1
    label = np.where((label == ignore_index) | (label == predictive.ignore_index), -1, label)
    if label.max() >= classes or label.min() < -1:
        raise InputError(
            f"y must have classes from 0 to {classes - 1}, got {label.min()} to {label.max()}. Pass ignore_index= for "
            "the label of pixels without a class."
        )
    return label
