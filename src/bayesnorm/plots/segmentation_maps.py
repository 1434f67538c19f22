"""A plot of a segmented image: image, label, prediction, errors and entropy or mutual information, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch

from ..arguments import require_positive
from ..errors import BayesNormError, InputError
from ..metrics import auroc
from ..predictive import ClassificationPredictive
from . import style

TITLE = "High values should lie on object borders and on errors"
UNCERTAINTIES = {
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
# Bottom and height of the panels within the axes, and the gap between them; and the width of a panel in inches.
BOX, GAP, INCHES = (0.18, 0.74), 0.012, 3.0


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
        if uncertainty not in UNCERTAINTIES:
            raise BayesNormError(f"uncertainty must be {' or '.join(map(repr, UNCERTAINTIES))}, got {uncertainty!r}.")
        if not -batch <= row < batch:
            raise BayesNormError(f"row must be from 0 to {batch - 1} for {batch} images, got {row}.")
        if classes is not None and len(classes) != number:
            raise BayesNormError(f"classes must have {number} names, one per class, got {len(classes)}.")
        return cls(
            image=None if image is None else _picture(image, height, width),
            label=None if y is None else _label(y, row, predictive, ignore_index),
            prediction=predictive.label[row].cpu().numpy(),
            uncertainty=getattr(predictive, uncertainty)[row].detach().double().cpu().numpy(),
            uncertainty_name=UNCERTAINTIES[uncertainty],
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
        mean = f"mean {self.uncertainty_name} {self.uncertainty.mean():.2f} nats"
        if self.label is None or self.wrong is None:
            return mean
        at_wrong, at_right = self.uncertainty[self.wrong], self.uncertainty[(self.label >= 0) & ~self.wrong]
        if not len(at_wrong):
            return f"{mean}; {'all labelled pixels are correct' if len(at_right) else 'no pixel is labelled'}"
        if not len(at_right):
            return f"{mean}; all labelled pixels are wrong"
        return (
            f"mean {self.uncertainty_name}: {at_wrong.mean():.2f} nats at wrong pixels, {at_right.mean():.2f} nats at "
            f"correct ones; AUROC {float(auroc(at_right, at_wrong)):.2f}"
        )

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw the panels side by side into `ax` or a new figure, and return the axes."""
        panels, (height, width) = self.panels, self.prediction.shape
        ax = style.axes(ax, (INCHES * len(panels) + 0.7, INCHES * height / width / BOX[1] + 0.4))
        ax.set_axis_off()
        now = style.current()
        share = (1 - 0.045 - GAP * (len(panels) - 1)) / len(panels)
        shown: Any = None  # the last panel, of the uncertainty
        for number, name in enumerate(panels):
            panel = ax.inset_axes((number * (share + GAP), BOX[0], share, BOX[1]))
            panel.set_axis_off()
            panel.set_title(name, color=now.ink, fontsize="small", pad=4)
            shown = self.show(panel, name)
        bar = ax.inset_axes((1 - 0.04, BOX[0] + 0.03, 0.011, BOX[1] - 0.06))
        bar.figure.colorbar(shown, cax=bar).outline.set_visible(False)
        bar.tick_params(color=now.faint, labelcolor=now.ink, labelsize="x-small")
        bar.set_title("nats", color=now.ink, fontsize="x-small", pad=4)
        name_classes(ax, [self], loc="upper center", bbox_to_anchor=(0.5, BOX[0] - 0.01))
        style.headline(ax, self.title, self.summary)
        return ax

    @property
    def panels(self) -> list[str]:
        """Names of the panels, from left to right."""
        image = [] if self.image is None else ["image"]
        names = ["prediction"] if self.label is None else ["label", "prediction", "errors"]
        return [*image, *names, self.uncertainty_name]

    def show(self, ax: style.Axes, name: str) -> Any:
        """Draw one panel into axes, and return the drawn image."""
        if name == self.uncertainty_name:
            most = self.scale or float(self.uncertainty.max()) or self.most
            return ax.imshow(self.uncertainty, cmap="magma", vmin=0, vmax=most, interpolation="nearest")
        return ax.imshow(self._panel(name), interpolation="nearest")

    def _panel(self, name: str) -> Any:
        """Return the colours of a panel: the image, the classes or the errors."""
        if name == "image":
            return self.image
        if name == "errors":
            assert self.label is not None
            return _rgb((RIGHT, WRONG, VOID))[np.where(self.label < 0, 2, self.label != self.prediction)]
        # -1, no class, selects the last colour.
        return _rgb((*_class_colours(len(self.classes)), VOID))[self.prediction if name == "prediction" else self.label]


def _class_colours(classes: int) -> list[str]:
    """Return the colours of classes; with many classes, colours repeat."""
    return list(itertools.islice(itertools.cycle(CLASS_COLOURS), classes))


def _rgb(colours: Sequence[str]) -> Any:
    """Return red, green and blue of every colour, from 0 to 1."""
    return style.matplotlib().colors.to_rgba_array(colours)[:, :3]


def name_classes(place: style.Axes | style.Figure, maps: Sequence[SegmentationMaps], **options: Any) -> None:
    """Draw a legend of the classes that occur in the maps, and of the colours of errors."""
    pixels = [part.ravel() for one in maps for part in (one.prediction, one.label) if part is not None]
    present, colours = np.unique(np.concatenate(pixels)).tolist(), _class_colours(len(maps[0].classes))
    names = [(maps[0].classes[index], colours[index]) for index in present if index >= 0]
    if -1 in present:
        names.append(("not labelled", VOID))
    if any(one.label is not None for one in maps):
        names.append(("wrong", WRONG))
    patch, ink = style.matplotlib().patches.Patch, style.current().ink
    handles = [patch(color=colour, label=name) for name, colour in names]
    columns = min(len(names), 8)
    place.legend(handles=handles, ncols=columns, fontsize="x-small", frameon=False, labelcolor=ink, **options)


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
