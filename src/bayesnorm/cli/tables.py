"""Read tables as data frames: whole, in parts, or as a random sample. An error is one line that says what to do.

`table_source.py` finds the source of a table. This module reads the cells of CSV files as text, so that a column means
the same in every part of a file and in every file. `tabular/column_types.py` decides whether a column holds numbers.
`typed_files.py` reads files whose cells have types.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, MissingExtraError, quoted
from .table_source import PASS_A_TABLE, Source, detect_encoding, detect_format, find_source
from .typed_files import Rows, cell_value, parquet_names, read_excel, read_json_lines, read_parquet, read_sqlite
from .written_numbers import without_marks

DELIMITERS = (",", ";", "\t", "|")
# Default of --max-size for files that are read whole.
MOST_MIB = 1024

# Number of lines that decide the delimiter and the decimal point of a file.
INSPECTED_LINES = 100

# Rows that are read at a time for a sample.
CHUNK = 100_000


@dataclass(frozen=True)
class TableFile:
    """The format of a table.

    Args:
        source: The source of the table.
        names: Names of the columns; columns without a name are left out.
        places: Positions of these columns in the file, from 0.
        delimiter: The delimiter between cells of text; None for files whose cells have types.
        decimal: The decimal point.
        header: Number of the line with the names, from 0.
        blank_rows: Whether a blank line is a row with a missing value, as in tables with one column.
        encoding: The encoding of text.
        nameless: Number of columns without a name.
        rows: The cells, if they had to be read to find the names; None for text and Parquet.
    """

    source: Source
    names: tuple[str, ...]
    places: tuple[int, ...]
    delimiter: str | None
    decimal: str = "."
    header: int = 0
    blank_rows: bool = False
    encoding: str = "utf-8-sig"
    nameless: int = 0
    rows: Rows | None = field(default=None, repr=False, compare=False)


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
    """Return the format of a table; text and Parquet files are not read whole.

    Args:
        data: A file with column names in its first line, "-" for standard input, or sqlite:///file.db?table.
        max_mib: Largest accepted size.
        encoding: The encoding of text; None detects it.
    """
    source = find_source(data, max_mib)
    file_format = detect_format(source, encoding)
    if file_format == "parquet":
        return _table_file(source, parquet_names(source), None, ".")
    if file_format == "text":
        return _open_text(source, detect_encoding(source, encoding))
    if file_format == "xlsx":
        names, rows = read_excel(source)
    elif file_format == "sqlite":
        names, rows = read_sqlite(source)
    else:
        names, rows = read_json_lines(source, detect_encoding(source, encoding))
    return replace(_table_file(source, names, None, "."), rows=rows)


def read_table(file: TableFile, columns: Sequence[str] | None = None) -> Any:
    """Return the whole table as a data frame; its index numbers the rows from 1, without the header.

    Args:
        file: The table, from `open_table`.
        columns: Names of the columns to read, in this order; None for all.
    """
    (frame,) = read_chunks(file, columns, None)
    return frame


def read_chunks(file: TableFile, columns: Sequence[str] | None, rows: int | None) -> Generator[Any, None, None]:
    """Yield the table in parts, as data frames.

    Args:
        file: The table, from `open_table`.
        columns: Names of the columns to read, in this order; None for all.
        rows: Number of rows in each part; None for one part with all rows.
    """
    names = list(file.names if columns is None else columns)
    count = 0
    parts = _read_typed(file, names, rows) if file.delimiter is None else _read_text(file, names, rows)
    with contextlib.closing(parts):
        for block in parts:
            for start in range(0, len(block), rows or max(1, len(block))):  # some formats are read as one part
                part = block.iloc[start : start + (rows or len(block))][names]
                part.index = range(count + 1, count + 1 + len(part))
                count += len(part)
                yield part
    if not count:
        raise InputError(f"{file.source} has column names, but no rows. Pass a table with rows.")


def read_sample(file: TableFile, size: int, required: str, seed: int, chunk: int = CHUNK) -> Sample:
    """Return a uniform sample without replacement; memory holds at most one chunk and twice the sample.

    Args:
        file: The table, from `open_table`.
        size: Size of the sample; a table with fewer rows is returned whole.
        required: The column in which a row must have a value.
        seed: The random seed.
        chunk: Rows that are read at a time.
    """
    generator, frames, keys = np.random.default_rng(seed), list[Any](), np.empty(0)
    rows = without = 0
    for part in read_chunks(file, None, chunk):
        complete = part[part[required].notna()]
        rows, without = rows + len(complete), without + len(part) - len(complete)
        frames.append(complete)
        keys = np.concatenate([keys, generator.random(len(complete))])
        if len(keys) > 2 * size:
            frames, keys = _smallest_keys(frames, keys, size)
    frames, keys = _smallest_keys(frames, keys, size)
    return Sample(frames[0], rows, without)


def pandas() -> Any:
    """Return the package pandas, or raise an error that says how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("Tables need scikit-learn and pandas. Run: pip install scikit-learn pandas") from error
    return pandas


def _smallest_keys(frames: list[Any], keys: Any, size: int) -> tuple[list[Any], Any]:
    """Return the rows with the smallest keys, in their order."""
    frame = pandas().concat(frames)
    smallest = np.sort(np.argsort(keys, kind="stable")[:size])
    return [frame.iloc[smallest].copy()], keys[smallest]


def _open_text(source: Source, encoding: str) -> TableFile:
    """Return the format of a CSV or TSV file, from its first lines."""
    with source.open_text(encoding) as text:
        lines = [*itertools.islice(text, INSPECTED_LINES)]
    if not any(line.strip() for line in lines):
        raise InputError(f"{source} contains only blank lines. Pass a table with column names in its first line.")
    if "\0" in "".join(lines):
        raise InputError(f"{source} is not a text file. {PASS_A_TABLE}")
    by_suffix = "\t" if source.path and ".tsv" in map(str.lower, source.path.suffixes[-2:]) else None
    try:
        delimiter = by_suffix or max(DELIMITERS, key=lambda candidate: _regularity(lines, candidate))
        records = [*csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(f"{source} cannot be read as a table ({error}). Correct the file.") from None
    header = next(number for number, record in enumerate(records) if record)
    names = [name.strip() for name in records[header]]
    decimal = "," if delimiter != "," and _has_decimal_commas(records[header + 1 :], delimiter) else "."
    file = _table_file(source, names, delimiter, decimal)
    return replace(file, header=header, blank_rows=len(names) == 1, encoding=encoding)


def _regularity(lines: list[str], delimiter: str) -> tuple[bool, int]:
    """Return whether most lines have the same number of cells as the first one, and more than one; and this number."""
    counts = [len(record) for record in csv.reader(lines, delimiter=delimiter) if record]
    same = sum(count == counts[0] for count in counts)
    return counts[0] > 1 and 2 * same > len(counts), counts[0]


def _has_decimal_commas(records: list[list[str]], delimiter: str) -> bool:
    """Return whether numbers have decimal commas; 1,234 counts as one only if the delimiter is ";"."""
    cells = {without_marks(cell) for record in records for cell in record}
    points = {cell for cell in cells if re.fullmatch(r"\d+\.\d+", cell)}
    commas = {cell for cell in cells if re.fullmatch(r"(\d+|\d{1,3}(\.\d{3})+),\d+", cell)}
    groups = {cell for cell in cells if re.fullmatch(r"[1-9]\d{0,2}([.,])\d{3}(\1\d{3})*", cell)}
    if points - groups:
        return False
    return bool(commas - groups) or (delimiter == ";" and bool(commas) and not points)


def _table_file(source: Source, header: list[str], delimiter: str | None, decimal: str) -> TableFile:
    """Return a table file with the names in its header, or raise an error that says what is wrong with them."""
    from ..tabular import column_types

    places = tuple(i for i, name in enumerate(header) if name)
    names = tuple(header[i] for i in places)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{source} has two columns called {quoted(twice)}. Rename one of them.")
    if not names:
        raise InputError(f"{source} has no column names. Write them in the first line.")
    _, words = column_types.read_numbers(pandas().Series(names, dtype=object))
    if 2 * words.sum() < len(names):
        first = ", ".join(names[:3])
        raise InputError(
            f"{source}: the first line contains numbers ({first}, ...) instead of column names. Add a line with names."
        )
    return TableFile(source, names, places, delimiter, decimal, nameless=len(header) - len(names))


def _read_text(file: TableFile, columns: Sequence[str], rows: int | None) -> Generator[Any, None, None]:
    """Yield the cells of a CSV or TSV file as text, in parts of `rows` rows."""
    pd = pandas()
    place = dict(zip(file.names, file.places, strict=True))
    with contextlib.ExitStack() as opened:
        text = opened.enter_context(file.source.open_text(file.encoding))
        with _pandas_errors_in_one_line(file.source):
            reader = opened.enter_context(
                pd.read_csv(
                    text,
                    sep=file.delimiter,
                    skiprows=file.header,
                    header=0,
                    skip_blank_lines=not file.blank_rows,
                    index_col=False,
                    dtype=str,
                    skipinitialspace=True,
                    low_memory=False,
                    iterator=True,
                )
            )
        more = True
        while more:
            with _pandas_errors_in_one_line(file.source):
                try:
                    part = reader.read(rows)
                except StopIteration:
                    return
            more = rows is not None
            frame = part.iloc[:, [place[name] for name in columns]]
            frame.columns = list(columns)
            yield frame


@contextlib.contextmanager
def _pandas_errors_in_one_line(source: Source) -> Iterator[None]:
    """Turn an error of pandas about a file into an error of one line."""
    pd = pandas()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.ParserWarning:
        raise InputError(
            f"{source}: some rows have more cells than the first line has names. Correct the file."
        ) from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{source} contains no table. Pass a table with column names in its first line.") from None
    except pd.errors.ParserError as error:
        match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if match is None:
            raise InputError(f"{source} cannot be read as a table ({error}). Correct the file.") from None
        raise InputError(
            f"{source}: line {match[2]} has {match[3]} cells, but the first line has {match[1]} names. Correct that "
            "line, or put quotes around cells that contain the delimiter."
        ) from None


def _read_typed(file: TableFile, columns: Sequence[str], rows: int | None) -> Generator[Any, None, None]:
    """Yield columns of a table whose cells have types; all formats except Parquet come as one part."""
    if file.rows is None:
        yield from read_parquet(file.source, columns, rows)
        return
    place = dict(zip(file.names, file.places, strict=True))
    cells = {name: [cell_value(row[place[name]]) for row in file.rows] for name in columns}
    yield pandas().DataFrame(cells, columns=list(columns), dtype=object)
