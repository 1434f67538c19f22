"""The page of uncertainty maps: the reader moves a threshold and sees which pixels to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..words import format_percent
from .contents import Provenance
from .verdict import SYMBOLS, Grade

# Largest share of pixels to check at the first position of the slider.
AT_FIRST = 0.1


@dataclass(frozen=True)
class MappedImage:
    """An image of the page. All pictures have one size and are data URIs.

    Args:
        name: Name of the image.
        photo: The image.
        labels: Its predicted classes in their colours.
        uncertainty: Its entropy in grey; white is the largest possible entropy.
        wrong: Wrong pixels in white; "" if the true classes are unknown.
        size: Width and height of the pictures.
        mean_entropy: Its mean entropy, as a share of the largest possible one.
        accuracy: Share of right pixels; None if unknown.
    """

    name: str
    photo: str
    labels: str
    uncertainty: str
    wrong: str
    size: tuple[int, int]
    mean_entropy: float
    accuracy: float | None = None


@dataclass(frozen=True)
class MapsReport:
    """The contents of the page.

    Args:
        title: Title of the page.
        images: The images that are shown, the most uncertain first.
        all_images: Number of all images.
        counts: Number of pixels of all images at each level of entropy.
        right, labelled: Number of these pixels that are right, and that have a true class; None without true classes.
        classes: Names and colours of the classes.
        provenance: How the page was made.
    """

    title: str
    images: Sequence[MappedImage]
    all_images: int
    counts: NDArray[np.int64]
    right: NDArray[np.int64] | None
    labelled: NDArray[np.int64] | None
    classes: Sequence[tuple[str, tuple[int, int, int]]]
    provenance: Provenance


def maps_context(report: MapsReport) -> dict[str, Any]:
    """Return the values that the template uses, by name."""
    level = first_level(report.counts)
    grade, headline = _verdict(report, level)
    return {
        "report": report,
        "title": report.title,
        "grade": grade,
        "symbol": SYMBOLS[grade],
        "headline": headline,
        "levels": len(report.counts),
        "level": level,
        "counts": report.counts.tolist(),
        "right": None if report.right is None else report.right.tolist(),
        "labelled": None if report.labelled is None else report.labelled.tolist(),
    }


def first_level(counts: NDArray[np.int64]) -> int:
    """Return the lowest level of entropy with at most a tenth of the pixels above it."""
    above = counts.sum() - np.cumsum(counts)
    return int(np.argmax(above <= AT_FIRST * counts.sum()))


def _verdict(report: MapsReport, level: int) -> tuple[Grade, str]:
    share = float(report.counts[level + 1 :].sum() / max(1, report.counts.sum()))
    if report.right is None or report.labelled is None:
        above = f"{format_percent(share)} of the pixels are above the first threshold."
        return "fair", f"The true classes are unknown. {above}"
    rest = report.right[: level + 1].sum() / max(1, report.labelled[: level + 1].sum())
    whole = report.right.sum() / max(1, report.labelled.sum())
    wrong = report.labelled.sum() - report.right.sum()
    mistake_share = (report.labelled - report.right)[level + 1 :].sum() / max(1, wrong)
    # Pixels chosen at random would contain the same share of the mistakes as of all pixels.
    grade: Grade = "good" if mistake_share >= 3 * share else "fair" if mistake_share >= 1.5 * share else "poor"
    return grade, (
        f"{format_percent(whole)} of the pixels are right. If you check the most uncertain {format_percent(share)} of "
        f"the pixels, you find {format_percent(mistake_share)} of the mistakes. Of the remaining pixels, "
        f"{format_percent(rest)} are right."
    )
