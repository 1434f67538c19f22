"""The page about new rows: whether they differ from the training rows, in which columns, and where in the network.

The terminal shows the same sentences. Below is the page of uncertainty maps, on which the reader moves a threshold and
sees which pixels to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..plots import DriftLayers
from ..shift import LEVEL
from ..words import capitalise, format_count, format_day, format_number, format_percent
from .contents import Provenance
from .page_plots import ColumnPlot, changed_most
from .pictures import page_picture
from .verdict import SYMBOLS, Grade

if TYPE_CHECKING:
    from ..tabular import ColumnDrift, TableDrift

# Columns with a picture, and columns in the list, at most.
MOST_PICTURES, MOST_COLUMNS = 12, 200

# Columns and categories that one sentence names at most, and reasons why rows are unusual.
MOST_NAMED, MOST_SHARES, MOST_REASONS = 5, 4, 3

# Smaller changes of a share are not mentioned.
LEAST_CHANGE = 0.01

# Smaller p-values are not written out.
TINY = 1e-4

# Below this number of rows, only large changes can be shown.
FEW_ROWS = 30

# Largest share of pixels to check at the first position of the slider of maps.
AT_FIRST = 0.1

# Said after the estimated error of a table's rows.
ESTIMATE_OF_ROWS = "If the rows have drifted, the true error can be much larger, so check it with new targets."

# The caption of the picture of layers.
LAYERS = (
    "One bar for each batch-norm layer, from input to output. The longer the bar, the less likely is such a "
    "difference for the same number of training rows. A change in one layer also affects the layers after it."
)


@dataclass(frozen=True)
class DriftReport:
    """The contents of the page.

    Args:
        file: Name of the file with the new rows.
        target: Name of the column that the model predicts.
        drift: The result of the comparison.
        provenance: How the page was made.
        reasons: Reasons why single rows are unusual compared with the training rows, with the number of rows for each.
    """

    file: str
    target: str
    drift: TableDrift
    provenance: Provenance
    reasons: Mapping[str, int] = field(default_factory=dict)


def drift_context(report: DriftReport) -> dict[str, Any]:
    """Return the values that the template uses, by name."""
    drift = report.drift
    grade: Grade = "poor" if drift.drifted else "good"
    order = sorted(drift.columns, key=lambda column: (not column.moved, column.p_value))
    return {
        "report": report,
        "title": report.file,
        "drift": drift,
        "grade": grade,
        "symbol": SYMBOLS[grade],
        "headline": drift_headline(drift),
        "chance": chance_words(drift),
        "moved": moved_words(drift),
        "network": network_words(drift),
        "error": error_words(drift),
        "unusual": unusual_words(drift, report.reasons),
        "columns": [(column, column_words(column)) for column in order[:MOST_COLUMNS]],
        "pictures": [
            page_picture("drift", ColumnPlot(column), f"{capitalise(column_words(column))}.", f"Column{i}")
            for i, column in enumerate(drift.moved[:MOST_PICTURES])
        ],
        "layers": drift.network and page_picture("drift", DriftLayers.from_drift(drift.network), LAYERS),
    }


def drift_summary(drift: TableDrift, reasons: Mapping[str, int]) -> dict[str, str]:
    """Return the lines that the terminal shows, by name; `reasons` say why single rows are unusual."""
    return {
        "rows": f"{drift_headline(drift)} {chance_words(drift)}",
        "changed columns": moved_words(drift),
        **{f"  {column.name}": column_words(column) for column in drift.moved},
        "network": network_words(drift),
        **({"error": error} if (error := error_words(drift)) else {}),
        "single rows": unusual_words(drift, reasons),
    }


def drift_headline(drift: TableDrift) -> str:
    """Say in one sentence whether the new rows differ from the training rows."""
    one = drift.rows == 1
    these = "This row" if one else f"These {format_count(drift.rows, 'row')}"
    if drift.drifted:
        return f"{these} {'differs' if one else 'differ'} from the training rows."
    if one and drift.unusual:
        return "This row is unusual compared with the training rows."
    text = f"{these} {'does' if one else 'do'} not differ significantly from the training rows"
    return f"{text}, but so few rows can show only large changes." if drift.rows < FEW_ROWS else f"{text}."


def chance_words(drift: TableDrift) -> str:
    """Say how likely such a difference is for training rows."""
    sample = f"A random sample of {format_count(drift.rows, 'training row')} would"
    if drift.p_value < TINY:
        return f"{sample} differ this much less than once in {round(1 / TINY):,} samples (p < {TINY:g})."
    if drift.p_value >= 1:
        return f"{sample} usually differ this much (p = 1)."
    share, chance = format_percent(drift.p_value, 1), format_number(drift.p_value, 2)
    return f"{sample} differ this much in {share} of samples (p = {chance})."


def moved_words(drift: TableDrift) -> str:
    """Name the columns that changed."""
    names = [column.name for column in drift.moved]
    if not names:
        return f"no single column ({len(drift.columns)} tested)"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def column_words(column: ColumnDrift) -> str:
    """Say how far a column changed, in its own units."""
    parts = []
    if column.shares:
        clear = [share for share in changed_most(column, MOST_SHARES) if abs(share[2] - share[1]) >= LEAST_CHANGE]
        parts = [f"{name}: {format_percent(a)} in training, {format_percent(b)} now" for name, a, b in clear]
        parts = parts or ["about the same shares as in training"]
    elif column.median is not None:
        before, now = map(format_day if column.kind == "date" else format_number, column.median)
        if column.kind == "date" and before[:10] != now[:10]:
            before, now = before[:10], now[:10]  # the time of a median date does not help
        parts.append(f"median {before} in training, {now} now")
        if column.shift:
            sign = "+" if column.shift >= 0 else "−"
            parts[-1] += f" ({sign}{format_number(abs(column.shift), 2)} times the spread in training)"
        if column.spread_ratio is not None:
            spread = format_number(column.spread_ratio, 2)
            parts.append("same spread" if spread == "1" else f"spread {spread} times as large")
    if column.kind != "category" and column.missing[0] != column.missing[1]:
        before, now = map(format_percent, column.missing)
        parts.append(f"missing in {before} of training rows, {now} now")
    if column.new_categories:
        parts.append(f"{format_percent(column.new_share)} of rows have a category that is not in the training rows")
    return "; ".join(parts) or "no values to compare"


def network_words(drift: TableDrift) -> str:
    """Say whether the layers of the network differ, and which one first."""
    network = drift.network
    if network is None:
        return f"Only the columns were compared, not the network: {drift.without_network.rstrip('.')}."
    if network.first_layer is None:
        if network.p_value < LEVEL:
            chance = format_number(network.p_value, 2)
            return f"All layers of the network together differ (p = {chance}), but no single layer does significantly."
        return f"No layer of the network differs significantly (p = {format_number(network.p_value, 2)})."
    at = [layer.name for layer in network.layers].index(network.first_layer)
    layer = network.layers[at]
    return (
        f"In the network, the rows first differ at layer {layer.name} ({at + 1} of {len(network.layers)}): "
        f"means shifted by {format_number(layer.mean_shift, 2)} standard deviations, spread "
        f"{format_number(layer.spread_ratio, 2)} times as large."
    )


def error_words(drift: TableDrift) -> str:
    """Say how wrong the model probably is on these rows, or why this is unknown; "" without batch statistics."""
    if drift.network is None:
        return ""
    text = drift.network.error_text().replace("these examples", "these rows")
    return text if drift.network.expected_error is None else f"{text} {ESTIMATE_OF_ROWS}"


def unusual_words(drift: TableDrift, reasons: Mapping[str, int]) -> str:
    """Say how many single rows are unusual compared with the training rows, and why."""
    rows = round(drift.unusual * drift.rows)
    if not rows:
        return "No single row is unusual compared with the training rows."
    share = f"{rows:,} of {format_count(drift.rows, 'row')} ({format_percent(drift.unusual)})"
    named = f": {reason_words(reasons)}." if reasons else "."
    return f"{share} {'is' if rows == 1 else 'are'} unusual compared with the training rows{named}"


def reason_words(reasons: Mapping[str, int]) -> str:
    """Name the reasons why single rows are unusual, the most frequent first, with the number of rows."""
    order = sorted(reasons.items(), key=lambda item: -item[1])
    more = f" and {format_count(len(order) - MOST_REASONS, 'more reason')}" if len(order) > MOST_REASONS else ""
    return "; ".join(f"{reason} ({number_of:,})" for reason, number_of in order[:MOST_REASONS]) + more


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
