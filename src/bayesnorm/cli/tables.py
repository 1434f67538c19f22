"""Read tables as data frames: whole, in parts, or as a random sample. An error is one line that says what to do.

`table_format.py` finds a table, and `table_source.py` limits what is read. `text_tables.py` and `typed_files.py` read
the formats row by row or in small parts. The cells of CSV files stay text, so that a column means the same in every
part of a file and in every file. `tabular/column_types.py` decides whether a column holds numbers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import secrets
import warnings
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, quoted
from .table_format import ZIP, Format, detect_encoding, detect_format, find_source, inside_archive
from .table_source import (
    CONTROL,
    GZIP,
    LONGEST_ROW,
    MEMORY_FACTOR,
    ContentLimit,
    Source,
    data_frame,
    pandas as pandas,
    text_frame,
)
from .text_tables import CsvFormat, csv_columns, detect_csv, json_names, json_rows
from .typed_files import (
    excel_rows,
    load_pyarrow,
    parquet_names,
    parquet_parts,
    parquet_rows,
    sqlite_names,
    sqlite_rows,
)

# Default of --max-size for files that are read whole.
MOST_MIB = 1024

# Rows that are read at a time for a table or a sample.
CHUNK = 10_000


@dataclass(frozen=True)
class TableFile:
    """The format of a table.

    Args:
        source: The source of the table.
        format: The format of the file.
        header: The names of all columns; "" for columns without a name, which are left out.
        encoding: The encoding of text.
        csv: The format of a CSV file; None for files whose cells have types.
    """

    source: Source
    format: Format
    header: tuple[str, ...]
    encoding: str = ""
    csv: CsvFormat | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(filter(None, self.header))

    @property
    def nameless(self) -> int:
        """The number of columns without a name."""
        return self.header.count("")

    @functools.cached_property
    def about_rows(self) -> int:
        """About how many rows the table has, for a progress bar; 0 if that is unknown."""
        path = self.source.path
        if path is None or self.format == "sqlite" or self.format == "xlsx":
            return 0
        if self.format == "parquet":
            return parquet_rows(self.source)
        with path.open("rb") as file:
            start = file.read(2**18)
        return 0 if start.startswith((GZIP, ZIP)) else round(path.stat().st_size * start.count(b"\n") / len(start))

    @property
    def fingerprint(self) -> str:
        """A text that differs if the file was changed; for standard input, a text that never occurs again."""
        path = self.source.path
        if path is None:
            return secrets.token_hex(16)
        files = (path, path.with_name(f"{path.name}-wal"))
        states = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
        return str([str(path.resolve()), self.source.table, states, self.encoding])

    @property
    def decimal(self) -> str:
        """The decimal point."""
        return "." if self.csv is None else self.csv.decimal


class Sample(NamedTuple):
    """A random sample of rows.

    Args:
        frame: The sampled rows, in the order of the file.
        rows: Number of rows that they were sampled from.
        without: Number of further rows, in which the required value is missing.
    """

    frame: Any
    rows: int
    without: int


def open_table(data: str | Path, max_mib: float = MOST_MIB, encoding: str | None = None) -> TableFile:
    """Return the format of a table; no table is held whole.

    Args:
        data: A file with column names in its first line, "-" for standard input, or sqlite:///file.db?table.
        max_mib: Largest accepted size of the content: unpacked, and of the cells.
        encoding: The encoding of text; None detects it.
    """
    source = inside_archive(find_source(data, max_mib, encoding))
    file_format = detect_format(source, encoding)
    limit, text_encoding, csv_format = ContentLimit(source), "", None
    if file_format == "parquet":
        load_pyarrow()
    from ..tabular import column_types  # noqa: F401  (libraries are loaded before memory is limited)

    with limit.bounded_memory(), warnings.catch_warnings(action="ignore"):  # of openpyxl, about styles
        if file_format in ("text", "jsonl"):
            text_encoding = detect_encoding(source, encoding)
        if file_format == "text":
            csv_format = detect_csv(source, text_encoding)
            header = list(csv_format.header)
        elif file_format == "jsonl":
            header = json_names(source, text_encoding, limit)
        elif file_format == "xlsx":
            header = _excel_header(source, limit)
        else:
            header = parquet_names(source) if file_format == "parquet" else sqlite_names(source)
        _require_names(source, header)
    return TableFile(source, file_format, tuple(header), text_encoding, csv_format)


def read_table(file: TableFile, columns: Sequence[str] | None = None) -> Any:
    """Return the whole table as a data frame; its index numbers the rows from 1, without the header.

    Args:
        file: The table, from `open_table`.
        columns: Names of the columns to read, in this order; None for all.
    """
    parts = [*read_chunks(file, columns, CHUNK, ContentLimit(file.source).most // MEMORY_FACTOR)]
    with warnings.catch_warnings(action="ignore"):  # about types of parts in which a column has no value
        return pandas().concat(parts)


def read_chunks(
    file: TableFile, columns: Sequence[str] | None, rows: int, size: int = LONGEST_ROW
) -> Generator[Any, None, None]:
    """Yield the table in parts, as data frames.

    Args:
        file: The table, from `open_table`.
        columns: Names of the columns to read, in this order; None for all.
        rows: Largest number of rows in each part.
        size: About how many bytes the cells of a part have at most.
    """
    pandas()
    names, limit, count = list(file.names if columns is None else columns), ContentLimit(file.source), 0
    with contextlib.closing(_parts(file, names, rows, size, limit)) as parts:
        while True:
            with limit.bounded_memory(), warnings.catch_warnings(action="ignore"):  # of openpyxl, about styles
                block = next(parts, None)
            if block is None:
                break
            for start in range(0, len(block), rows):
                part = block.iloc[start : start + rows]
                part.index = range(count + 1, count + 1 + len(part))
                count += len(part)
                yield part
    if not count:
        raise InputError(f"{file.source} has column names, but no rows. Pass a table with rows.")


def read_sample(
    file: TableFile, columns: Sequence[str] | None, size: int, required: str, seed: int, chunk: int = CHUNK
) -> Sample:
    """Return a uniform sample without replacement; memory holds at most one chunk and twice the sample.

    Args:
        file: The table, from `open_table`.
        columns: Names of the columns to read, in this order; None for all.
        size: Size of the sample; a table with fewer rows is returned whole.
        required: The column in which a row must have a value.
        seed: The random seed.
        chunk: Rows that are read at a time.
    """
    generator, frames, keys = np.random.default_rng(seed), list[Any](), np.empty(0)
    rows = without = 0
    for part in read_chunks(file, columns, chunk):
        complete = part[part[required].notna()]
        rows, without = rows + len(complete), without + len(part) - len(complete)
        frames.append(complete)
        keys = np.concatenate([keys, generator.random(len(complete))])
        if len(keys) > 2 * size:
            frames, keys = _smallest_keys(frames, keys, size)
    frames, keys = _smallest_keys(frames, keys, size)
    return Sample(frames[0], rows, without)


def _smallest_keys(frames: list[Any], keys: Any, size: int) -> tuple[list[Any], Any]:
    """Return the rows with the smallest keys, in their order."""
    frame = pandas().concat(frames)
    smallest = np.sort(np.argsort(keys, kind="stable")[:size])
    return [frame.iloc[smallest].copy()], keys[smallest]


def _require_names(source: Source, header: Sequence[str]) -> None:
    """Raise an error that says what is wrong with the names of columns."""
    from ..tabular import column_types

    ContentLimit(source).require_row(0, len(header))
    names = [name for name in header if name]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{source} has two columns called {quoted(twice)}. Rename one of them.")
    if not names:
        raise InputError(f"{source} has no column names. Write them in the first line.")
    unprintable = next(filter(CONTROL.search, names), None)
    if unprintable is not None:
        raise InputError(f"{source}: the column name {quoted(unprintable)} has control characters. Rename the column.")
    _, words = column_types.read_numbers(pandas().Series(names, dtype=object))
    if 2 * words.sum() < len(names):
        first = ", ".join(names[:3])
        raise InputError(
            f"{source}: the first line contains numbers ({first}, ...) instead of column names. Add a line with names."
        )


def _excel_header(source: Source, limit: ContentLimit) -> list[str]:
    """Return the cells of the first row of an Excel file as names, and "" for further columns."""
    rows = excel_rows(source, limit)
    header = next(rows, None)
    if header is None:
        raise InputError(f"{source}: the first sheet is empty. It needs column names in its first line, and rows.")
    width = max(map(len, rows), default=0)
    names = ["" if name is None else str(name).strip() for name in header]
    return [*names, *[""] * (width - len(names))]


def _parts(
    file: TableFile, names: Sequence[str], rows: int, size: int, limit: ContentLimit
) -> Generator[Any, None, None]:
    """Yield columns of a table as data frames; those of Parquet files have their own sizes."""
    if file.format == "parquet":
        yield from parquet_parts(file.source, names, limit)
        return
    position = {name: place for place, name in enumerate(file.header)}
    places, block, before = [position[name] for name in names], list[Sequence[Any]](), 0
    if file.csv is not None:
        columns: list[list[str]] = [[] for _ in places]
        for part in csv_columns(file.source, file.encoding, file.csv, places, limit):
            for column, cells in zip(columns, part, strict=True):
                column.extend(cells)
            while columns and (len(columns[0]) >= rows or limit.cell_bytes - before > size):
                yield text_frame([column[:rows] for column in columns], names)
                columns, before = [column[rows:] for column in columns], limit.cell_bytes
        if columns and columns[0]:
            yield text_frame(columns, names)
        return
    for row in _rows(file, limit):
        block.append(row)
        if len(block) == rows or limit.cell_bytes - before > size:
            yield data_frame(block, names, places)
            block, before = [], limit.cell_bytes
    if block:
        yield data_frame(block, names, places)


def _rows(file: TableFile, limit: ContentLimit) -> Iterator[Sequence[Any]]:
    """Yield the rows of a table whose cells have types and that is not a Parquet file, with a cell for each column."""
    if file.format == "jsonl":
        return json_rows(file.source, file.encoding, file.header, limit)
    if file.format == "sqlite":
        return sqlite_rows(file.source, limit)
    width, rows = len(file.header), excel_rows(file.source, limit)
    return ((*row, *[None] * (width - len(row))) for row in itertools.islice(rows, 1, None))
