"""Read files whose cells have types, Parquet, Excel and SQLite, part by part.

A few kilobytes can unpack to any size, and a view of a database can compute forever, so that all of it is limited.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import BayesNormError, InputError, load_package, quoted
from .table_source import DATABASE, LONGEST_ROW, ContentLimit, Source, escape, is_missing

# Rows and cells of a Parquet file that are read at a time.
_BATCH, _BATCH_CELLS = 2**16, 2**20

# Rows of the longest Excel sheet.
_SHEET_ROWS = 1_048_576

# Steps of a database's virtual machine: so many, and so many more for each byte of the file.
STEPS, STEPS_PER_BYTE = 5 * 10**7, 100
_STEPS_AT_A_TIME = 10**5


def load_pyarrow() -> Any:
    """Return the package pyarrow, or raise an error that says how to install it."""
    load_package("pyarrow.parquet", "Parquet files need pyarrow. Run: pip install pyarrow, or save the table as CSV.")
    return sys.modules["pyarrow"]


def parquet_names(source: Source) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    with _open_parquet(source) as (arrow, file):
        names = arrow.parquet.ParquetFile(file).schema_arrow.names
    return [str(name) for name in names if not str(name).startswith("__index_level_")]


def parquet_rows(source: Source) -> int:
    """Return the number of rows of a Parquet file."""
    with _open_parquet(source) as (arrow, file):
        return int(arrow.parquet.ParquetFile(file).metadata.num_rows)


def parquet_parts(source: Source, columns: Sequence[str], limit: ContentLimit) -> Iterator[Any]:
    """Yield columns of a Parquet file as data frames."""
    with _open_parquet(source) as (arrow, file):
        schema, types = arrow.parquet.ParquetFile(file).schema_arrow, arrow.types
        texts = []
        for name in columns:
            kind = schema.field(name).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if types.is_string(kind) or types.is_large_string(kind):
                texts.append(name)
            elif not (types.is_primitive(kind) or types.is_null(kind) or types.is_decimal(kind)):
                raise InputError(
                    f"{source}: column {quoted(name)} contains {kind} values. Convert it to numbers or text, or leave "
                    f"it out with --drop {name}."
                )
        # One text can be the value of all rows, which are much larger than the file unless they share it.
        parquet = arrow.parquet.ParquetFile(file, read_dictionary=texts, pre_buffer=False)
        groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
        ContentLimit(source).add_cells(0, parquet.metadata.num_rows * len(columns))
        limit.add_bytes(sum(group.total_byte_size for group in groups))
        rows = max(1, min(_BATCH, _BATCH_CELLS // max(1, len(columns))))
        for batch in parquet.iter_batches(rows, columns=list(columns), use_threads=False):
            frame = arrow.Table.from_batches([batch]).to_pandas(ignore_metadata=True)[list(columns)]
            size = 0
            for name in texts:
                frame[name] = frame[name].astype(object)
                size += int(frame[name].str.len().sum())
            limit.add_cells(size, frame.size)
            yield frame


@contextlib.contextmanager
def _open_parquet(source: Source) -> Iterator[tuple[Any, Any]]:
    """Yield pyarrow and a stream of a Parquet file; raise an error if the file is damaged."""
    arrow = load_pyarrow()
    with _one_line_errors(source, "as Parquet"), source.open_unpacked() as file:
        yield arrow, file


def excel_rows(source: Source, limit: ContentLimit) -> Iterator[Sequence[Any]]:
    """Yield the rows of an Excel file's first sheet that contain a value; a formula is read as its last value."""
    excel = load_package("openpyxl", "Excel files need openpyxl. Run: pip install openpyxl, or save the table as CSV.")
    with _one_line_errors(source, "as Excel"), source.open_unpacked() as file:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
        limit.add_bytes(sum(part.file_size for part in parts))
        # Styles and the like are held as a whole, and take much more memory than their XML has characters.
        if any(part.file_size > LONGEST_ROW for part in parts if not re.search("/.*/|sharedStrings", part.filename)):
            raise InputError(f"{source} has styles of more than {LONGEST_ROW >> 20} MiB. Save the table as CSV.")
        with contextlib.closing(excel.load_workbook(file, read_only=True, data_only=True)) as book:
            sheet = book.worksheets[0]
            sheet.reset_dimensions()
            for number, row in enumerate(sheet.iter_rows(values_only=True)):
                if number == _SHEET_ROWS:
                    raise InputError(f"{source} has more than {_SHEET_ROWS:,} rows, which Excel does not write.")
                if not all(map(is_missing, row)):
                    width = next(place for place in range(len(row), 0, -1) if row[place - 1] is not None)
                    limit.add_row(sum(len(cell) for cell in row if isinstance(cell, str)), width)
                    yield row[:width]


def sqlite_names(source: Source) -> list[str]:
    """Return the names of the columns of a table or view of an SQLite database."""
    with _select(source) as cursor:
        return [column for column, *_ in cursor.description]


def sqlite_rows(source: Source, limit: ContentLimit) -> Iterator[Sequence[Any]]:
    """Yield the rows of a table or view of an SQLite database."""
    with _select(source) as cursor:
        for row in cursor:
            size = sum(len(cell) for cell in row if isinstance(cell, str | bytes))
            limit.add_row(size, len(row))
            yield row


@contextlib.contextmanager
def _select(source: Source) -> Iterator[sqlite3.Cursor]:
    """Yield a cursor over the rows of a table or view, which can do nothing but read tables of its database."""
    with (
        _one_line_errors(source, "as an SQLite database"),
        _unchanged(source) as address,
        contextlib.closing(sqlite3.connect(address, uri=True)) as database,
    ):
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY", "mmap_size = 0"):
            database.execute(f"PRAGMA {setting}")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)
        # Virtual tables, which run code of extensions, have no page of their own.
        query = (
            "SELECT name FROM sqlite_master WHERE (type = 'view' OR type = 'table' AND rootpage > 0) "
            "AND name NOT LIKE 'sqlite_%' AND typeof(name) = 'text' ORDER BY name"
        )
        names = [name for (name,) in database.execute(query)]
        table = _require_table(source, names)
        steps = STEPS + STEPS_PER_BYTE * Path(source.path or "").stat().st_size
        count = iter(range(steps // _STEPS_AT_A_TIME))
        database.set_progress_handler(lambda: next(count, None) is None, _STEPS_AT_A_TIME)

        def authorize(action: int, name: str | None, *_: object) -> int:
            reads = action == sqlite3.SQLITE_READ and name in names
            is_query = reads or action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION)
            return sqlite3.SQLITE_OK if is_query else sqlite3.SQLITE_DENY

        database.set_authorizer(authorize)
        yield database.execute('SELECT * FROM "{}"'.format(table.replace('"', '""')))


def _require_table(source: Source, names: Sequence[str]) -> str:
    """Return the name of the table of a source, or raise an error if its database does not have it."""
    table = source.table or ""
    if table in names:
        return table
    listed_names = escape(", ".join(names[:20]) + (", ..." if len(names) > 20 else ""))
    problem = f"{source.path} has no table {quoted(table)}." if table else f"No table of {source.path} is named."
    advice = (
        f"Pass {DATABASE}{source.path}?{escape(names[0])}, for example. Its tables are {listed_names}." if names else ""
    )
    raise InputError(f"{problem} {advice or 'The database has no tables.'}")


@contextlib.contextmanager
def _unchanged(source: Source) -> Iterator[str]:
    """Yield an address of a database; reading there writes no files beside the user's database.

    A database with a write-ahead log is copied with it, because SQLite writes into a third file to read them.
    """
    assert source.path is not None
    path = source.path.resolve()
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        with path.open("rb") as file:
            uses_log = file.read(20)[18:] == b"\2\2"
        yield f"file:{quote(os.fsencode(path))}?mode=ro{'&immutable=1' if uses_log else ''}"
        return
    limit, files = ContentLimit(source), (path, log)
    before = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    limit.add_bytes(sum(size for _, size in before))
    with tempfile.TemporaryDirectory() as folder:
        for part in files:
            shutil.copyfile(part, Path(folder) / part.name)
        if before != [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]:
            raise InputError(f"{source} was changed while it was read. Close the program that writes it, or try again.")
        yield f"file:{quote(os.fsencode(Path(folder) / path.name))}"


@contextlib.contextmanager
def _one_line_errors(source: Source, how: str) -> Iterator[None]:
    """Turn any error of another library about a file into an error of one line."""
    try:
        yield
    except (BayesNormError, MemoryError):
        raise
    except Exception as error:
        words = "a view takes too many steps" if str(error) == "interrupted" else str(error) or type(error).__name__
        why = escape(" ".join(words.split()))
        raise InputError(f"{source} cannot be read {how} ({why}). Save the file again.") from None
