"""What has become of new rows, in sentences for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..shift import LEVEL
from .words import count, date, number, percent

if TYPE_CHECKING:
    from ..tabular import ColumnDrift, TableDrift

# Columns that are named in one line, and categories in one sentence.
MOST_NAMED, MOST_SHARES = 5, 4

# Reasons for calling rows unlike that are told in one line.
MOST_REASONS = 3

# Changes of a share below this are not told.
LEAST_CHANGE = 0.01

# Chances below this are only called that.
TINY = 1e-4


def headline(drift: TableDrift) -> str:
    """Say in one sentence whether the rows are like those of training."""
    these = "This row is" if drift.rows == 1 else f"These {count(drift.rows, 'row')} are"
    if drift.drifted:
        return f"{these} unlike the training rows."
    return f"{these} like the training rows, as far as so {'few' if drift.rows < 30 else 'many'} can tell."


def chance_words(drift: TableDrift) -> str:
    """Say how likely it is that training rows differ as much."""
    if drift.p_value < TINY:
        return f"As many training rows would differ so much in less than one of {1 / TINY:,.0f} cases."
    if drift.p_value >= 1:
        return "As many training rows would usually differ as much."
    return f"As many training rows would differ so much in {percent(drift.p_value, 1)} of cases."


def moved_words(drift: TableDrift) -> str:
    """Name the columns that moved."""
    names = [column.name for column in drift.moved]
    if not names:
        return f"no column by itself ({len(drift.columns)} looked at)"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def column_words(column: ColumnDrift) -> str:
    """Say how far a column moved, in its own units."""
    parts = []
    if column.shares:
        parts += _changed(column)
    elif column.median is not None:
        before, now = map(date if column.kind == "date" else number, column.median)
        if column.kind == "date" and before[:10] != now[:10]:
            before, now = before[:10], now[:10]  # the time of a median date is no help
        parts.append(f"median {before} in training, {now} now")
        if column.shift is not None:
            parts[-1] += f" ({'+' if column.shift >= 0 else '−'}{number(abs(column.shift), 2)} times the usual spread)"
        if column.spread_ratio is not None:
            parts.append(f"spread × {number(column.spread_ratio, 2)}")
    if column.kind != "category" and column.missing[0] != column.missing[1]:
        parts.append(f"missing in {percent(column.missing[0])} of training rows, {percent(column.missing[1])} now")
    if column.new_categories:
        parts.append(f"{percent(column.new_share)} of rows hold a category that training did not have")
    return "; ".join(parts) or "nothing to compare"


def network_words(drift: TableDrift) -> str:
    """Say what the network sees, and where first."""
    found = drift.network
    if found is None:
        return f"Only columns were compared: {drift.without_network.rstrip('.')}."
    if found.first_layer is None:
        if found.p_value < LEVEL:
            return f"The layers together differ somewhat (p = {found.p_value:.2g}), no single one beyond chance."
        return f"No layer of the network sees a difference (p = {found.p_value:.2g})."
    names = [layer.name for layer in found.layers]
    layer = found.layers[names.index(found.first_layer)]
    return (
        f"In the network they differ first at layer {layer.name} ({names.index(layer.name) + 1} of {len(names)}): "
        f"means moved by {number(layer.mean_shift, 2)} standard deviations, spread × {number(layer.spread_ratio, 2)}."
    )


def unlike_words(drift: TableDrift, why: Mapping[str, int]) -> str:
    """Say how many rows are unlike those of training each by itself, and in what."""
    rows = round(drift.unusual * drift.rows)
    if not rows:
        return "No row is unlike the training rows by itself."
    share = f"{rows:,} of {count(drift.rows, 'row')} ({percent(drift.unusual)})"
    reasons = f": {reason_words(why)}." if why else "."
    return f"{share} {'is' if rows == 1 else 'are'} unlike the training rows, each by itself{reasons}"


def reason_words(why: Mapping[str, int]) -> str:
    """Name the reasons why single rows are unlike those of training, the most frequent first, with their rows."""
    order = sorted(why.items(), key=lambda each: -each[1])
    more = f" and {count(len(order) - MOST_REASONS, 'more reason')}" if len(order) > MOST_REASONS else ""
    return "; ".join(f"{reason} ({number_of:,})" for reason, number_of in order[:MOST_REASONS]) + more


def _changed(column: ColumnDrift) -> list[str]:
    """Name the categories whose shares changed most."""
    order = sorted(column.shares, key=lambda each: -abs(each[2] - each[1]))
    clear = [each for each in order[:MOST_SHARES] if abs(each[2] - each[1]) >= LEAST_CHANGE]
    named = [f"{name}: {percent(a)} in training, {percent(b)} now" for name, a, b in clear]
    return named or ["shares as in training"]
