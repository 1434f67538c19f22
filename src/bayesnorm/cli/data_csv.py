"""`bayesnorm data csv`: write an example table of scikit-learn as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import quoted
from ..files import write_bytes
from ..words import format_count
from .bundled_data import BUNDLED, load_bundled
from .ending import UsageError
from .output_files import SpreadsheetSafe, mark_formula, require_free
from .printing import note, standard_output


def data_csv(
    name: Annotated[str, typer.Argument(help=f"Table to write: {', '.join(BUNDLED)}.")],
    out: Annotated[Path, typer.Option(help="CSV file to write, or - for standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    spreadsheet_safe: SpreadsheetSafe = False,
) -> None:
    """Write an example table of scikit-learn as a CSV file.

    The columns keep their names. The last column is called target.

    \b
    Example:
      bayesnorm data csv sklearn:diabetes --out diabetes.csv
    """
    if name not in BUNDLED:
        raise UsageError(f"NAME must be one of {', '.join(BUNDLED)}, got {quoted(name)}.")
    if str(out) != "-":
        require_free(out, force)
    frame = load_bundled(name)
    columns, rows = [str(column) for column in frame.columns], frame.astype(object).values.tolist()
    if spreadsheet_safe:
        columns, rows = [*map(mark_formula, columns)], [[*map(mark_formula, row)] for row in rows]
    write_table(columns, rows, out)


def write_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], out: Path) -> None:
    """Write column names and rows as CSV to a file and print its size, or write to standard output if `out` is "-"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if str(out) == "-":
        with standard_output() as stream:
            stream.write(text.getvalue())
        return
    write_bytes(out, text.getvalue().encode())
    note(f"Wrote {format_count(len(rows), 'row')} and {format_count(len(columns), 'column')} to {out}.")
