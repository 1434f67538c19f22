"""`bayesnorm data csv`: write an example table of scikit-learn as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import MissingExtraError, quoted
from ..words import format_count
from ..writing import write_bytes
from .ending import UsageError
from .output_files import SpreadsheetSafe, mark_formula, require_free
from .printing import note, standard_output

# The name of each table, and the scikit-learn function that loads it. The last column is called "target".
BUNDLED = {
    "sklearn:diabetes": "load_diabetes",
    "sklearn:breast_cancer": "load_breast_cancer",
    "sklearn:iris": "load_iris",
    "sklearn:wine": "load_wine",
    "sklearn:digits": "load_digits",
}


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


def load_bundled(name: str) -> Any:
    """Return a table as a data frame, in its original units and with class names instead of class numbers.

    Args:
        name: One of `BUNDLED`.
    """
    try:
        import pandas  # noqa: F401
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError(
            f"{name} needs scikit-learn and pandas. Run: pip install scikit-learn pandas"
        ) from error
    options = {"scaled": False} if name == "sklearn:diabetes" else {}
    bunch = getattr(datasets, BUNDLED[name])(as_frame=True, **options)
    frame = bunch.frame.copy()
    if name != "sklearn:digits" and hasattr(bunch, "target_names"):
        frame["target"] = [str(bunch.target_names[number]) for number in frame["target"]]
    return frame
