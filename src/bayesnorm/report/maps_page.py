"""The page about maps of uncertainty: drag a threshold, and see what a person would be asked to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contents import Provenance
from .verdict import SYMBOLS, Grade
from .words import percent

# The share of pixels that a person might be asked to check: where the slider stands at first.
AT_FIRST = 0.1


@dataclass(frozen=True)
class MappedImage:
    """An image as the page shows it; pictures of one size, as data URIs.

    Args:
        name: What it is called.
        photo: The image.
        labels: Its predicted classes in their colours.
        uncertainty: Its uncertainty, grey, white for the most that there can be.
        wrong: Pixels that are wrong, white; "" where truth is not known.
        size: Width and height of the pictures.
        mean_entropy: Its mean uncertainty, as a share of the most.
        accuracy: The share of right pixels, if known.
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
    """What the page shows.

    Args:
        title: What the images are.
        images: Those that are shown, most uncertainty first.
        all_images: How many were mapped.
        counts: Pixels of all images by level of uncertainty.
        right, known: Of these, how many are right, and of how many that is known; None without true classes.
        classes: Names and colours of the classes.
        provenance: How the page was made.
    """

    title: str
    images: Sequence[MappedImage]
    all_images: int
    counts: NDArray[np.int64]
    right: NDArray[np.int64] | None
    known: NDArray[np.int64] | None
    classes: Sequence[tuple[str, tuple[int, int, int]]]
    provenance: Provenance


def maps_context(report: MapsReport) -> dict[str, Any]:
    """Return all that the template uses, by name."""
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
        "known": None if report.known is None else report.known.tolist(),
    }


def first_level(counts: NDArray[np.int64]) -> int:
    """Return the level of uncertainty above which a tenth of the pixels, at most, lie."""
    above = counts.sum() - np.cumsum(counts)
    return int(np.argmax(above <= AT_FIRST * counts.sum()))


def _verdict(report: MapsReport, level: int) -> tuple[Grade, str]:
    share = float(report.counts[level + 1 :].sum() / max(1, report.counts.sum()))
    if report.right is None or report.known is None:
        return (
            "fair",
            f"How right the labels are is not known; {percent(share)} of the pixels lie above the first threshold.",
        )
    rest = report.right[: level + 1].sum() / max(1, report.known[: level + 1].sum())
    whole = report.right.sum() / max(1, report.known.sum())
    wrong = report.known.sum() - report.right.sum()
    found = (report.known - report.right)[level + 1 :].sum() / max(1, wrong)
    # Pixels that were chosen by chance would hold as large a share of the mistakes as of all pixels.
    grade: Grade = "good" if found >= 3 * share else "fair" if found >= 1.5 * share else "poor"
    return grade, (
        f"{percent(whole)} of the pixels are right. Checking the {percent(share)} with most uncertainty would show "
        f"{percent(found)} of the mistakes, and of the rest {percent(rest)} are right."
    )
