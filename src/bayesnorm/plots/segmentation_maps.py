"""A plot of a segmented image with its uncertainty: image, label, prediction, uncertainty and errors of pixels, side by side."""

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

TITLE = "Uncertainty should lie on borders and on mistakes"
DOUBTS = {
    "entropy": "entropy",
    "mutual_information": "mutual information",
    "expected_entropy": "expected entropy",
}

# Colours of the classes: Okabe and Ito's, then Tol's muted ones; the class's name stands beside each.
COLOURS = (
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
# Foot and height of the panels within the axes.
BOX = (0.18, 0.74)


@dataclass(frozen=True)
class SegmentationMaps:
    """Maps of one image.

    Args:
        image: Red, green and blue from 0 to 1, (height, width, 3); or None, for a picture without it.
        label: True class of every pixel, -1 for none, (height, width); or None.
        prediction: Most probable class, (height, width).
        uncertainty: Uncertainty of every pixel in nats, (height, width).
        uncertainty_name: Name of the kind of uncertainty.
        most: The greatest uncertainty that there can be.
        classes: Names of the classes.
        title: Title, which says what one should see.
        scale: Uncertainty that gets the brightest colour; None for the greatest of this map.
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
    def of(
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
        """Take one image of a batch.

        Args:
            image: The image as a person sees it: (height, width, 3), (height, width) or (3, height, width); whole
                numbers to 255 or fractions to 1. None leaves it out.
            predictive: Predictions of a batch of images, (batch, class, height, width).
            y: True classes of the batch, (batch, height, width), or of this image, (height, width).
            row: Number of the image in the batch.
            uncertainty: "entropy" (all uncertainty), "mutual_information" (what more data could take away, epistemic) or
                "expected_entropy" (the rest, aleatoric).
            classes: Names of the classes.
            ignore_index: Label of pixels that belong to no class, beside the likelihood's own.
            title: Title, which says what one should see.
            scale: Uncertainty in nats that gets the brightest colour: the same for maps that are compared (`draw_maps` sees
                to it). None for the greatest uncertainty of this map.
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
            raise BayesNormError(f"row: {row} was given for {batch} images; 0 to {batch - 1} would work.")
        if classes is not None and len(classes) != number:
            raise BayesNormError(f"classes: {len(classes)} names for {number} classes; one of each would work.")
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
        """Mask of the pixels that are labelled and wrong; None without labels."""
        return None if self.label is None else (self.label >= 0) & (self.label != self.prediction)

    @property
    def summary(self) -> str:
        """One line of text that says what was measured."""
        if self.label is None or self.wrong is None:
            return f"mean {self.uncertainty_name} {self.uncertainty.mean():.2f} nats"
        right = (self.label >= 0) & ~self.wrong
        if not (right.any() and self.wrong.any()):
            return f"mean {self.uncertainty_name} {self.uncertainty.mean():.2f} nats; all labelled pixels are alike"
        found = float(auroc(self.uncertainty[right], self.uncertainty[self.wrong]))
        return (
            f"mean {self.uncertainty_name}: {self.uncertainty[self.wrong].mean():.2f} nats where wrong, "
            f"{self.uncertainty[right].mean():.2f} where right; AUROC {found:.2f}"
        )

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure: panels beside each other inside of it."""
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
        """Names of what there is to show, from left to right."""
        labelled = self.label is not None
        return [
            *(["image"] if self.image is not None else []),
            *(["label"] if labelled else []),
            "prediction",
            *(["errors"] if labelled else []),
            self.uncertainty_name,
        ]

    def show(self, ax: Axes, name: str) -> Any:
        """Draw one of the panels into axes of its own, and return the picture."""
        if name == self.uncertainty_name:
            most = self.scale or float(self.uncertainty.max()) or self.most
            return ax.imshow(self.uncertainty, cmap="magma", vmin=0, vmax=most, interpolation="nearest")
        return ax.imshow(self._panel(name), interpolation="nearest")

    def _panel(self, name: str) -> np.ndarray:
        """Return the image, the classes or the errors of a panel as colours."""
        from matplotlib.colors import to_rgb

        if name == "image":
            assert self.image is not None
            return self.image
        if name == "errors":
            assert self.label is not None
            colours = np.array([to_rgb(colour) for colour in (RIGHT, WRONG, VOID)])
            return colours[np.where(self.label < 0, 2, self.label != self.prediction)]
        colours = np.array(
            [to_rgb(COLOURS[index % len(COLOURS)]) for index in range(len(self.classes))] + [to_rgb(VOID)]
        )
        shown = self.prediction if name == "prediction" else self.label
        assert shown is not None
        return colours[shown]  # -1, no class, is the last


def name_classes(place: Axes | Figure, maps: Sequence[SegmentationMaps], **options: Any) -> None:
    """Draw a legend of the classes that occur in maps of the same classes, and of what the errors' colours mean."""
    from matplotlib.patches import Patch

    given = [part for one in maps for part in (one.prediction, one.label) if part is not None]
    found = set().union(*(np.unique(part).tolist() for part in given))
    names = [Patch(color=COLOURS[index % len(COLOURS)], label=maps[0].classes[index]) for index in sorted(found - {-1})]
    if -1 in found:
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
        found = values.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"image: {type(image).__name__} is no array of numbers; (height, width, 3) would work."
        ) from error
    if found.shape == (3, height, width):
        found = np.moveaxis(found, 0, -1)
    elif found.shape == (height, width):
        found = np.repeat(found[..., None], 3, axis=-1)
    if found.shape != (height, width, 3):
        raise InputError(f"image: has shape {found.shape}; ({height}, {width}, 3), as the predictions, would work.")
    if np.issubdtype(values.dtype, np.integer):
        found = found / 255
    if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1):
        raise InputError(
            f"image: goes from {found.min():g} to {found.max():g}; colours from 0 to 1, or whole numbers to 255, would "
            "work (before the network's own scaling)."
        )
    return found


def _label(y: Any, row: int, predictive: ClassificationPredictive, ignore_index: int | None) -> np.ndarray:
    """Return the true classes of one image, -1 where a pixel has none, or raise an error."""
    shape, classes = tuple(predictive.label.shape), predictive.probs.shape[1]
    label = np.asarray(y.cpu() if isinstance(y, torch.Tensor) else y)
    if label.shape == shape:
        label = label[row]
    if label.shape != shape[1:]:
        raise InputError(f"y: has shape {label.shape}; {shape} or {shape[1:]} would work.")
    label = label.astype(int)  # bytes hold no -1
    label = np.where((label == ignore_index) | (label == predictive.ignore_index), -1, label)
    if label.max() >= classes or label.min() < -1:
        raise InputError(
            f"y: holds classes {label.min()} to {label.max()}; 0 to {classes - 1} would work (ignore_index= names one "
            "that is none)."
        )
    return label
