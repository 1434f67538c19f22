"""Turn the cells of a file into a data frame: words for missing values, and control characters, are replaced."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError

# Words in a cell that mean a missing value.
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None"}
    | {"1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
)

# Characters that can steer a terminal or that no file can contain: control characters except for tabs and line ends,
# and halves of surrogate pairs.
CONTROL = re.compile("[\0-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")


def as_labels(values: Iterable[Any]) -> NDArray[np.object_]:
    """Return values as text objects; an array of a fixed width would take the longest text's memory for every one."""
    return np.array([*map(str, values)], dtype=object)


def is_missing(cell: Any) -> bool:
    """Return whether a cell is empty or contains a word for a missing value."""
    return cell is None or (isinstance(cell, str) and cell.strip() in MISSING)


def escape(text: str) -> str:
    r"""Return a text with control characters written as Python writes them, such as \x1b."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def text_frame(columns: Sequence[Sequence[str]], names: Sequence[str]) -> Any:
    """Return columns of text, in which control characters have been replaced, as a data frame."""
    pd, missing = pandas(), dict[str, Any].fromkeys(MISSING)
    texts = (
        pd.array(cells if MISSING.isdisjoint(cells) else [*map(missing.get, cells, cells)], dtype=str)
        for cells in columns
    )
    return pd.DataFrame(dict(zip(names, texts, strict=True)))


def data_frame(rows: Sequence[Sequence[Any]], names: Sequence[str], places: Sequence[int]) -> Any:
    """Return columns of a table, whose cells have types, as a data frame of objects.

    Args:
        rows: The rows of the table.
        names: The names of the columns.
        places: The positions of these columns in the rows.
    """
    values: dict[str, Any] = {}  # of texts; equal texts become the same object
    columns = [*zip(*rows, strict=True)]

    def value(cell: Any) -> Any:
        if isinstance(cell, str):
            if cell not in values:
                values[cell] = None if is_missing(cell) else escape(cell)
            return values[cell]
        if isinstance(cell, int) and cell.bit_length() >= sys.float_info.max_exp:  # too large for a float
            return math.copysign(math.inf, 1 if cell > 0 else -1)
        return cell

    cells = {name: [*map(value, columns[place])] for name, place in zip(names, places, strict=True)}
    return pandas().DataFrame(cells, columns=list(names), dtype=object)


def pandas() -> Any:
    """Return the package pandas, or raise an error that says how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("Tables need scikit-learn and pandas. Run: pip install scikit-learn pandas") from error
    return pandas
