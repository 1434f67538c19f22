"""Read tables as data frames; an error is one line that says what to do.

`table_source.py` finds the source of a table. This module reads the cells of CSV files as text, so that a column means
the same in every part of a file and in every file. `tabular/column_types.py` decides whether a column holds numbers.
`whole_tables.py` reads files whose cells have types.
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
from typing import Any

from ..errors import InputError, MissingExtraError, quoted
from .table_source import WORKS, Source, encoding_of, find_source, format_of
from .whole_tables import Rows, known, parquet_names, read_excel, read_json_lines, read_parquet, read_sqlite
from .written_numbers import without_marks

DELIMITERS = (",", ";", "\t", "|")
# Default of --max-size for files that are read whole.
MOST_MIB = 1024

# Number of lines that decide the delimiter and the decimal point of a file.
SNIFFED = 100


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


def open_table(data: str | Path, max_mib: float = MOST_MIB, encoding: str | None = None) -> TableFile:
    """Return the format of a table; text and Parquet files are not read whole.

    Args:
        data: A file with column names in its first line, "-" for standard input, or sqlite:///file.db?table.
        max_mib: Largest accepted size.
        encoding: The encoding of text; None detects it.
    """
    source = find_source(data, max_mib)
    found = format_of(source, encoding)
    if found == "parquet":
        return _named(source, parquet_names(source), None, ".")
    if found == "text":
        return _open_text(source, encoding_of(source, encoding))
    if found == "xlsx":
        names, rows = read_excel(source)
    elif found == "sqlite":
        names, rows = read_sqlite(source)
    else:
        names, rows = read_json_lines(source, encoding_of(source, encoding))
    return replace(_named(source, names, None, "."), rows=rows)


def read_table(file: TableFile) -> Any:
    """Return the whole table as a data frame; its index numbers the rows from 1, without the header."""
    (frame,) = read_chunks(file, None, None)
    return frame


def read_chunks(file: TableFile, columns: Sequence[str] | None, rows: int | None) -> Generator[Any, None, None]:
    """Yield the table in parts, as data frames.

    Args:
        file: The table, from `open_table`.
        columns: Names of the columns to read, in this order; None for all.
        rows: Number of rows in each part; None for one part with all rows.
    """
    wanted = list(file.names if columns is None else columns)
    found = 0
    parts = _read_typed(file, wanted, rows) if file.delimiter is None else _read_text(file, wanted, rows)
    with contextlib.closing(parts):
        for read in parts:
            for start in range(0, len(read), rows or max(1, len(read))):  # some formats are read as one part
                part = read.iloc[start : start + (rows or len(read))][wanted]
                part.index = range(found + 1, found + 1 + len(part))
                found += len(part)
                yield part
    if not found:
        raise InputError(f"{file.source} has column names, but no rows. Pass a table with rows.")


def pandas() -> Any:
    """Return the package pandas, or raise an error that says how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("Tables need scikit-learn and pandas. Run: pip install scikit-learn pandas") from error
    return pandas


def _open_text(source: Source, encoding: str) -> TableFile:
    """Return the format of a CSV or TSV file, from its first lines."""
    with source.text(encoding) as file:
        lines = [*itertools.islice(file, SNIFFED)]
    if not any(line.strip() for line in lines):
        raise InputError(f"{source} contains only blank lines. Pass a table with column names in its first line.")
    if "\0" in "".join(lines):
        raise InputError(f"{source} is not a text file. {WORKS}")
    delimiter = "\t" if source.path and ".tsv" in map(str.lower, source.path.suffixes[-2:]) else None
    try:
        chosen = delimiter or max(DELIMITERS, key=lambda each: _regularity(lines, each))
        records = [*csv.reader(lines, delimiter=chosen, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(f"{source} cannot be read as a table ({error}). Correct the file.") from None
    header = next(number for number, record in enumerate(records) if record)
    names = [name.strip() for name in records[header]]
    decimal = "," if chosen != "," and _has_decimal_commas(records[header + 1 :], chosen) else "."
    found = _named(source, names, chosen, decimal)
    return replace(found, header=header, blank_rows=len(names) == 1, encoding=encoding)


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


def _named(source: Source, header: list[str], delimiter: str | None, decimal: str) -> TableFile:
    """Return a table file with the names in its header, or raise an error that says what is wrong with them."""
    from ..tabular.column_types import read_numbers

    places = tuple(i for i, name in enumerate(header) if name)
    names = tuple(header[i] for i in places)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{source} has two columns called {quoted(twice)}. Rename one of them.")
    if not names:
        raise InputError(f"{source} has no column names. Write them in the first line.")
    _, words = read_numbers(pandas().Series(names, dtype=object))
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
        text = opened.enter_context(file.source.text(file.encoding))
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
        told = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if told is None:
            raise InputError(f"{source} cannot be read as a table ({error}). Correct the file.") from None
        raise InputError(
            f"{source}: line {told[2]} has {told[3]} cells, but the first line has {told[1]} names. Correct that line, "
            "or put quotes around cells that contain the delimiter."
        ) from None


def _read_typed(file: TableFile, columns: Sequence[str], rows: int | None) -> Generator[Any, None, None]:
    """Yield columns of a table whose cells have types; all formats except Parquet come as one part."""
    if file.rows is None:
        yield from read_parquet(file.source, columns, rows)
        return
    place = dict(zip(file.names, file.places, strict=True))
    cells = {name: [known(row[place[name]]) for row in file.rows] for name in columns}
    yield pandas().DataFrame(cells, columns=list(columns), dtype=object)
