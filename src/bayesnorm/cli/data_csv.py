"""`bayesnorm data csv`: write a data set as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data import UCI_SETS, load_uci
from ..errors import quoted
from ..files import write_bytes
from .bundled_data import BUNDLED, load_bundled
from .overwriting import require_free
from .printing import note, standard_output
from .spreadsheet import SpreadsheetSafe, harmless
from .usage import UsageError


def data_csv(
    name: Annotated[str, typer.Argument(help="Name of a table that `bayesnorm data list` shows.")],
    out: Annotated[Path, typer.Option(help="CSV file to write, or - for standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    spreadsheet_safe: SpreadsheetSafe = False,
) -> None:
    """Write a table as a CSV file: a UCI data set, or an example table of scikit-learn.

    UCI tables have the columns x1, x2, ... and y. Tables of scikit-learn keep
    their column names, and their last column is called target.

    \b
    Examples:
      bayesnorm data csv sklearn:diabetes --out diabetes.csv
      bayesnorm data csv yacht --out yacht.csv
    """
    if str(out) != "-":
        require_free(out, force)
    columns, rows = _load(name)
    if spreadsheet_safe:
        columns, rows = [*map(harmless, columns)], [[*map(harmless, row)] for row in rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if str(out) == "-":
        with standard_output() as stream:
            stream.write(text.getvalue())
        return
    write_bytes(out, text.getvalue().encode())
    from ..report.words import count

    rows_written = text.getvalue().count("\n") - 1
    note(f"Wrote {count(rows_written, 'row')} and {count(len(columns), 'column')} to {out}.")


def _load(name: str) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
    """Return the column names and the rows."""
    if name in BUNDLED:
        frame = load_bundled(name)
        return [str(column) for column in frame.columns], frame.astype(object).values.tolist()
    if name in UCI_SETS:
        inputs, target = load_uci(name)
        columns = [*(f"x{i + 1}" for i in range(inputs.shape[1])), "y"]
        return columns, [[*row, y] for row, y in zip(inputs.tolist(), target.tolist(), strict=True)]
    raise UsageError(f"NAME must be one of {', '.join([*UCI_SETS, *BUNDLED])}, got {quoted(name)}.")
