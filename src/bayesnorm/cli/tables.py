"""Tables as data frames: the door of whatever reads one. What cannot be read is told in one line that says what to do.

Where a table comes from is found in `table_source.py`. Cells of CSV files are read here, as text, so that a column
means the same in every part of a file and in every file; whether it holds numbers is decided in
`tabular/column_types.py`. Files whose cells have types are read in `whole_tables.py`.
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
# Size of a file above which it takes --max-size to read it whole.
MOST_MIB = 1024

# Lines that are looked at to find out how a file is written.
SNIFFED = 100


@dataclass(frozen=True)
class TableFile:
    """What looks like a table.

    Args:
        source: Where it comes from.
        names: Names of the columns; columns without a name are left out.
        places: Where these columns stand in the file, from 0.
        delimiter: What stands between cells of text; None for files whose cells have types.
        decimal: The decimal point.
        header: Number of the line with the names, from 0.
        blank_rows: Whether a blank line is a row with a missing value, as it is where there is one column only.
        encoding: The encoding of text.
        nameless: Number of columns without a name.
        rows: The cells, where they had to be read to know the names; None for text and Parquet.
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
    """Return how a file holds a table; text and Parquet are not read whole.

    Args:
        data: A file with names in its first line, "-" for standard input, or sqlite:///file.db?table.
        max_mib: Largest size that is accepted.
        encoding: The encoding of text; None to find it out.
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
    """Return the whole table as a data frame; rows are numbered from 1, as in the file after its first line."""
    (frame,) = read_chunks(file, None, None)
    return frame


def read_chunks(file: TableFile, columns: Sequence[str] | None, rows: int | None) -> Generator[Any, None, None]:
    """Give the table in parts, as data frames.

    Args:
        file: What `open_table` returned.
        columns: Names of the columns to read, in this order; None for all.
        rows: Number of rows of each part; None for one part with all of them.
    """
    wanted = list(file.names if columns is None else columns)
    found = 0
    parts = _read_typed(file, wanted, rows) if file.delimiter is None else _read_text(file, wanted, rows)
    with contextlib.closing(parts):
        for read in parts:
            for start in range(0, len(read), rows or max(1, len(read))):  # some come as one
                part = read.iloc[start : start + (rows or len(read))][wanted]
                part.index = range(found + 1, found + 1 + len(part))
                found += len(part)
                yield part
    if not found:
        raise InputError(f"{file.source} holds names, but no rows; a table with rows would work.")


def pandas() -> Any:
    """Return the package pandas, or say which extra brings it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("tables need pandas and scikit-learn: pip install scikit-learn pandas.") from error
    return pandas


def _open_text(source: Source, encoding: str) -> TableFile:
    """Return how a CSV or TSV file holds its table, from its first lines."""
    with source.text(encoding) as file:
        lines = [*itertools.islice(file, SNIFFED)]
    if not any(line.strip() for line in lines):
        raise InputError(f"{source} holds nothing but blank lines; a table with names in its first line would work.")
    if "\0" in "".join(lines):
        raise InputError(f"{source} is no text; {WORKS} would work.")
    delimiter = "\t" if source.path and ".tsv" in map(str.lower, source.path.suffixes[-2:]) else None
    try:
        chosen = delimiter or max(DELIMITERS, key=lambda each: _regularity(lines, each))
        records = [*csv.reader(lines, delimiter=chosen, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(f"{source} cannot be read as a table ({error}); mend the file.") from None
    header = next(number for number, record in enumerate(records) if record)
    names = [name.strip() for name in records[header]]
    decimal = "," if chosen != "," and _has_decimal_commas(records[header + 1 :], chosen) else "."
    found = _named(source, names, chosen, decimal)
    return replace(found, header=header, blank_rows=len(names) == 1, encoding=encoding)


def _regularity(lines: list[str], delimiter: str) -> tuple[bool, int]:
    """Return whether most lines have as many cells as the first one, and more than one; and how many."""
    counts = [len(record) for record in csv.reader(lines, delimiter=delimiter) if record]
    same = sum(count == counts[0] for count in counts)
    return counts[0] > 1 and 2 * same > len(counts), counts[0]


def _has_decimal_commas(records: list[list[str]], delimiter: str) -> bool:
    """Return whether numbers have decimal commas; 1,234 alone says so only where ";" stands between cells."""
    cells = {without_marks(cell) for record in records for cell in record}
    points = {cell for cell in cells if re.fullmatch(r"\d+\.\d+", cell)}
    commas = {cell for cell in cells if re.fullmatch(r"(\d+|\d{1,3}(\.\d{3})+),\d+", cell)}
    groups = {cell for cell in cells if re.fullmatch(r"[1-9]\d{0,2}([.,])\d{3}(\1\d{3})*", cell)}
    if points - groups:
        return False
    return bool(commas - groups) or (delimiter == ";" and bool(commas) and not points)


def _named(source: Source, header: list[str], delimiter: str | None, decimal: str) -> TableFile:
    """Return a table file with the names in its header, or say what is wrong with them."""
    from ..tabular.column_types import read_numbers

    places = tuple(i for i, name in enumerate(header) if name)
    names = tuple(header[i] for i in places)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{source}: the column {quoted(twice)} is there twice; rename one of them.")
    if not names:
        raise InputError(f"{source}: no column has a name; a first line with names would work.")
    _, words = read_numbers(pandas().Series(names, dtype=object))
    if 2 * words.sum() < len(names):
        first = ", ".join(names[:3])
        raise InputError(f"{source}: the first line holds numbers ({first}, ...), not names; put names there.")
    return TableFile(source, names, places, delimiter, decimal, nameless=len(header) - len(names))


def _read_text(file: TableFile, columns: Sequence[str], rows: int | None) -> Generator[Any, None, None]:
    """Give the cells of a CSV or TSV file as text, in parts of so many rows."""
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
    """Turn what pandas finds wrong with a file into an error of one line."""
    pd = pandas()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.ParserWarning:
        raise InputError(f"{source}: rows have more cells than the first line has names; mend the file.") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{source} holds no table; one with names in its first line would work.") from None
    except pd.errors.ParserError as error:
        told = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if told is None:
            raise InputError(f"{source} cannot be read as a table ({error}); mend the file.") from None
        raise InputError(
            f"{source}: line {told[2]} has {told[3]} cells, and the first line {told[1]} names; mend that line, or put "
            "quotes around cells that hold the delimiter."
        ) from None


def _read_typed(file: TableFile, columns: Sequence[str], rows: int | None) -> Generator[Any, None, None]:
    """Give columns of a table whose cells have types; but for Parquet as one part."""
    if file.rows is None:
        yield from read_parquet(file.source, columns, rows)
        return
    place = dict(zip(file.names, file.places, strict=True))
    cells = {name: [known(row[place[name]]) for row in file.rows] for name in columns}
    yield pandas().DataFrame(cells, columns=list(columns), dtype=object)
