"""Read tables whose cells have types: Parquet (whole or in parts), Excel, JSON lines and SQLite (whole)."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sqlite3
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any
from urllib.parse import quote

from ..errors import InputError, MissingExtraError, quoted
from .table_source import DATABASE, Source

Rows = list[tuple[Any, ...]]


# Words in a cell that mean a missing value, as in CSV files.
MISSING = frozenset({"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "null", "NULL", "None"})


def parquet_names(source: Source) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    with _parquet(source) as (arrow, file):
        names = arrow.parquet.read_schema(file).names
    return [str(name) for name in names if not str(name).startswith("__index_level_")]


def read_parquet(source: Source, columns: Sequence[str], rows: int | None) -> Iterator[Any]:
    """Yield columns of a Parquet file, whole (`rows=None`) or in parts of at most `rows` rows."""
    with _parquet(source) as (arrow, file):
        if rows is None:
            yield arrow.parquet.read_table(file, columns=list(columns)).to_pandas(ignore_metadata=True)
            return
        for part in arrow.parquet.ParquetFile(file).iter_batches(rows, columns=list(columns)):
            frame = arrow.Table.from_batches([part]).to_pandas(ignore_metadata=True)
            yield frame[list(columns)]


@contextlib.contextmanager
def _parquet(source: Source) -> Iterator[tuple[Any, IO[bytes]]]:
    """Yield pyarrow and a stream of a Parquet file; raise an error if pyarrow is missing or the file is damaged."""
    try:
        importlib.import_module("pyarrow.parquet")
        arrow = importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError(
            "Parquet files need pyarrow. Run: pip install pyarrow, or save the table as CSV."
        ) from error
    try:
        with source.open() as file:
            yield arrow, file
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{source} cannot be read as Parquet ({error}). Save the file again.") from None


def read_excel(source: Source) -> tuple[list[str], Rows]:
    """Return the names and rows of an Excel file's first sheet; a formula is read as its last value."""
    try:
        excel = importlib.import_module("openpyxl")
    except ImportError as error:
        raise MissingExtraError(
            "Excel files need openpyxl. Run: pip install openpyxl, or save the table as CSV."
        ) from error
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings about styles, which are not read
            book = excel.load_workbook(io.BytesIO(b"".join(source.blocks())), read_only=True, data_only=True)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()
            rows = [*sheet.iter_rows(values_only=True)]
            book.close()
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, SyntaxError, TypeError) as error:
        raise InputError(f"{source} cannot be read as Excel ({quoted(str(error))}). Save the file again.") from None
    filled = [row for row in rows if any(cell_value(cell) is not None for cell in row)]
    if not filled:
        raise InputError(f"{source}: the first sheet is empty. It needs column names in its first line, and rows.")
    width = max(map(len, filled))
    header, *body = [(*row, *[None] * (width - len(row))) for row in filled]
    return ["" if name is None else str(name).strip() for name in header], body


def cell_value(cell: Any) -> Any:
    """Return the value of a cell; None for words that mean a missing value."""
    return None if isinstance(cell, str) and cell.strip() in MISSING else cell


def read_json_lines(source: Source, encoding: str) -> tuple[list[str], Rows]:
    """Return the names and rows of a file with one JSON object per line; names missing in a line are missing values."""
    names: dict[str, None] = {}
    records = []
    with source.open_text(encoding) as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.strip())
            except (ValueError, RecursionError) as error:
                raise InputError(f"{source}: line {number} is not JSON ({error}). Correct that line.") from None
            if not isinstance(record, dict):
                raise InputError(
                    f'{source}: line {number} is not a JSON object. Every line must be an object such as {{"a": 1}}.'
                )
            records.append(record)
            names.update(dict.fromkeys(record))
    return [*names], [tuple(map(record.get, names)) for record in records]


def read_sqlite(source: Source) -> tuple[list[str], Rows]:
    """Return the names and rows of a table or view of an SQLite database, which is opened read-only."""
    assert source.path is not None
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(source.path.resolve()))}?mode=ro", uri=True)
        ) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            names = [name for (name,) in database.execute(f"{query} ORDER BY name")]
            table = source.table or ""
            if table not in names:
                listed_names = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
                problem = (
                    f"{source.path} has no table {quoted(table)}." if table else f"No table of {source.path} is named."
                )
                advice = f"Pass {DATABASE}{source.path}?{names[0]}, for example. Its tables are {listed_names}."
                raise InputError(f"{problem} {advice if names else 'The database has no tables.'}")
            cursor = database.execute('SELECT * FROM "{}"'.format(table.replace('"', '""')))
            return [column for column, *_ in cursor.description], cursor.fetchall()
    except sqlite3.Error as error:
        raise InputError(f"{source} cannot be read as an SQLite database ({error}).") from None
