"""Write tables as CSV files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bayesnorm.writing import write_bytes


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV, atomically.

    Args:
        path: The file.
        columns: Names of the columns.
        rows: Text and numbers, one row per line; None is an empty cell.
    """
    text = "".join(map(_line, (columns, *rows)))
    write_bytes(Path(path), text.encode("utf-8", "backslashreplace"))  # unpaired surrogates, which file names may have


def _line(cells: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)  # it ends lines with "\r\n", and quotes a cell that holds either of the two
    return line.getvalue().removesuffix("\r\n") + "\n"
