"""Predictions for the rows of a table, as columns of a data frame."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import quoted
from .file_columns import OddCells
from .tables import pandas

# Default number of significant digits of the standard deviation, and the number that writes all digits.
DIGITS, ALL_DIGITS = 4, 17


def count_infinite_intervals(frame: Any) -> int:
    """Return the number of rows whose interval is infinite on one side or both."""
    return int(np.isinf(frame[["lower", "upper"]].to_numpy()).any(1).sum()) if "lower" in frame else 0


def infinite_intervals_words(infinite: int, rows: int, level: float) -> str:
    """Return a sentence about conformal intervals that are infinite."""
    return (
        f"{infinite:,} of {rows:,} intervals are infinite: there are too few training rows to guarantee "
        f"{100 * level:g} % coverage. Use a lower --level or more training rows."
    )


def count_reasons(reasons: Iterable[str]) -> Counter[str]:
    """Count the reasons why rows are unusual, from their column `reason`."""
    return Counter(part for text in reasons if text for part in text.split("; "))


def flag_odd_cells(uncertainty: Any, part: Any, odd: OddCells) -> None:
    """Mark rows with a cell that cannot be read as unusual, and say that it counts as missing.

    Args:
        uncertainty: The uncertainty columns of the rows, with "unusual" and "reason"; they are changed.
        part: The same rows as they are in the file.
        odd: The cells that cannot be read.
    """
    place = uncertainty.columns.get_loc("reason")
    for name, cells in odd.items():
        for row in np.flatnonzero(cells).tolist():
            parts = [text for text in uncertainty.iat[row, place].split("; ") if text]
            parts = [text for text in parts if not text.startswith(f"{name} is missing, but")]
            shown = quoted(part[name].iloc[row]).replace(";", ",")
            parts.append(f"{name} contains {shown}, which cannot be read and counts as missing")
            uncertainty.iloc[row, place] = "; ".join(parts)
            uncertainty.iloc[row, uncertainty.columns.get_loc("unusual")] = True


def round_predictions(frame: Any, digits: int) -> Any:
    """Return predictions of `prediction_frame`, rounded to the precision that their uncertainty justifies.

    Regression: numbers keep the first `digits` significant digits of the row's `std`, and at least all whole digits.
    Classification: numbers keep `digits` decimals.

    Args:
        frame: The predictions, from `tabular.prediction_frame`.
        digits: Number of digits; `ALL_DIGITS` does not round.
    """
    if digits == ALL_DIGITS:
        return frame
    if "std" in frame:
        std = frame["std"].to_numpy()
        with np.errstate(divide="ignore"):
            places = digits - 1 - np.floor(np.log10(np.where(std > 0, std, 1.0)))
    else:
        places = np.full(len(frame), float(digits))
    # Larger powers of ten are not exact, and no double has so many digits.
    factor = 10.0 ** np.clip(places, 0, 22)
    numbers = [name for name in frame if frame[name].dtype.kind == "f"]
    with np.errstate(over="ignore"):
        rounded = {name: np.round(frame[name].to_numpy(np.float64) * factor) / factor + 0.0 for name in numbers}
    finite = {name: np.where(np.isfinite(values), values, frame[name]) for name, values in rounded.items()}
    return frame.assign(**finite)


def add_table_columns(frame: Any, before: Any, after: Any) -> Any:
    """Return predictions with columns of the table before and after them; a name that occurs twice gets " (table)".

    Args:
        frame: Predictions, whose first column is `row`.
        before: Columns to put before them, such as ids.
        after: Columns to put after them.
    """
    taken = {*frame.columns}
    renamed = []
    for columns in (before, after):
        names = {}
        for name in columns.columns:
            names[name] = next(candidate for candidate in _name_candidates(name) if candidate not in taken)
            taken.add(names[name])
        renamed.append(columns.rename(columns=names).reset_index(drop=True))
    rest = frame.reset_index(drop=True)
    return pandas().concat([rest[["row"]], renamed[0], rest.drop(columns="row"), renamed[1]], axis=1)


def _name_candidates(name: str) -> Iterator[str]:
    """Yield a name, then the name with " (table)", " (table 2)" and so on."""
    yield name
    for number in itertools.count(1):
        yield f"{name} (table{'' if number == 1 else f' {number}'})"


def join_targets(targets: Mapping[str, Any]) -> Any:
    """Return the predictions of several targets in one data frame, with one `unusual` and `reason` for each row.

    Args:
        targets: The predictions of the same rows, from `tabular.prediction_frame`, by target.
    """
    frames = list(targets.values())
    if len(frames) == 1:
        return frames[0]
    columns = {"row": frames[0]["row"]}
    for target, frame in targets.items():
        columns |= {f"{target} {name}": frame[name] for name in frame.columns.drop(["row", "unusual", "reason"])}
    # All targets have almost the same training rows, so the first reason is enough.
    reasons = np.select(
        [frame["reason"].to_numpy(object) != "" for frame in frames], [frame["reason"] for frame in frames], ""
    )
    return pandas().DataFrame({**columns, "unusual": reasons != "", "reason": reasons})
