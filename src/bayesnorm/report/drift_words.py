"""Sentences about drift, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..shift import LEVEL
from .words import count, date, number, percent

if TYPE_CHECKING:
    from ..tabular import ColumnDrift, TableDrift

# Columns that one line names at most, and categories that one sentence names at most.
MOST_NAMED, MOST_SHARES = 5, 4

# Reasons why rows are unusual that one line names at most.
MOST_REASONS = 3

# Smaller changes of a share are not mentioned.
LEAST_CHANGE = 0.01

# Smaller p-values are not written out.
TINY = 1e-4


def headline(drift: TableDrift) -> str:
    """Say in one sentence whether the new rows differ from the training rows."""
    one = drift.rows == 1
    these = "This row" if one else f"These {count(drift.rows, 'row')}"
    if drift.drifted:
        return f"{these} {'differs' if one else 'differ'} from the training rows."
    text = f"{these} {'does' if one else 'do'} not differ significantly from the training rows"
    return f"{text}, but so few rows can show only large changes." if drift.rows < 30 else f"{text}."


def chance_words(drift: TableDrift) -> str:
    """Say how likely such a difference is for training rows."""
    sample = f"A random sample of {count(drift.rows, 'training row')} would"
    if drift.p_value < TINY:
        return f"{sample} differ this much less than once in {round(1 / TINY):,} samples (p < {TINY:g})."
    if drift.p_value >= 1:
        return f"{sample} usually differ this much (p = 1)."
    return f"{sample} differ this much in {percent(drift.p_value, 1)} of samples (p = {number(drift.p_value, 2)})."


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
        parts += _changed(column)
    elif column.median is not None:
        before, now = map(date if column.kind == "date" else number, column.median)
        if column.kind == "date" and before[:10] != now[:10]:
            before, now = before[:10], now[:10]  # the time of a median date does not help
        parts.append(f"median {before} in training, {now} now")
        if column.shift:
            parts[-1] += (
                f" ({'+' if column.shift >= 0 else '−'}{number(abs(column.shift), 2)} times the spread in training)"
            )
        if column.spread_ratio is not None:
            spread = number(column.spread_ratio, 2)
            parts.append("same spread" if spread == "1" else f"spread {spread} times as large")
    if column.kind != "category" and column.missing[0] != column.missing[1]:
        parts.append(f"missing in {percent(column.missing[0])} of training rows, {percent(column.missing[1])} now")
    if column.new_categories:
        parts.append(f"{percent(column.new_share)} of rows have a category that is not in the training rows")
    return "; ".join(parts) or "no values to compare"


def network_words(drift: TableDrift) -> str:
    """Say whether the layers of the network differ, and which one first."""
    found = drift.network
    if found is None:
        return f"Only the columns were compared, not the network: {drift.without_network.rstrip('.')}."
    if found.first_layer is None:
        if found.p_value < LEVEL:
            chance = number(found.p_value, 2)
            return f"All layers of the network together differ (p = {chance}), but no single layer does significantly."
        return f"No layer of the network differs significantly (p = {number(found.p_value, 2)})."
    names = [layer.name for layer in found.layers]
    layer = found.layers[names.index(found.first_layer)]
    return (
        f"In the network, the rows first differ at layer {layer.name} ({names.index(layer.name) + 1} of {len(names)}): "
        f"means shifted by {number(layer.mean_shift, 2)} standard deviations, spread {number(layer.spread_ratio, 2)} "
        "times as large."
    )


def unlike_words(drift: TableDrift, why: Mapping[str, int]) -> str:
    """Say how many single rows are unusual compared with the training rows, and why."""
    rows = round(drift.unusual * drift.rows)
    if not rows:
        return "No single row is unusual compared with the training rows."
    share = f"{rows:,} of {count(drift.rows, 'row')} ({percent(drift.unusual)})"
    reasons = f": {reason_words(why)}." if why else "."
    return f"{share} {'is' if rows == 1 else 'are'} unusual compared with the training rows{reasons}"


def reason_words(why: Mapping[str, int]) -> str:
    """Name the reasons why single rows are unusual, the most frequent first, with the number of rows."""
    order = sorted(why.items(), key=lambda each: -each[1])
    more = f" and {count(len(order) - MOST_REASONS, 'more reason')}" if len(order) > MOST_REASONS else ""
    return "; ".join(f"{reason} ({number_of:,})" for reason, number_of in order[:MOST_REASONS]) + more


def _changed(column: ColumnDrift) -> list[str]:
    """Name the categories whose shares changed most."""
    order = sorted(column.shares, key=lambda each: -abs(each[2] - each[1]))
    clear = [each for each in order[:MOST_SHARES] if abs(each[2] - each[1]) >= LEAST_CHANGE]
    named = [f"{name}: {percent(a)} in training, {percent(b)} now" for name, a, b in clear]
    return named or ["about the same shares as in training"]
