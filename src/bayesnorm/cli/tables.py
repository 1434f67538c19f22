"""Tables in files: CSV, TSV and Parquet. What cannot be read is told in one line that says what to do.

Cells of CSV files are read as text, so that a column means the same in every part of a file and in every file; whether
it holds numbers is decided in `tabular/column_types.py`.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import importlib
import itertools
import re
import shlex
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingExtraError, quoted

DELIMITERS = (",", ";", "\t", "|")
# Size of a file above which it takes --max-size to read it whole.
MOST_MIB = 1024

# Lines that are looked at to find out how a file is written.
SNIFFED = 100

_PACKED = {".gz", ".zip", ".bz2", ".xz", ".zst", ".7z"}
_OTHER = {".xlsx": "a spreadsheet", ".xls": "a spreadsheet", ".ods": "a spreadsheet", ".json": "JSON", ".html": "HTML"}


@dataclass(frozen=True)
class TableFile:
    """A file that looks like a table.

    Args:
        path: The file.
        names: Names of the columns; columns without a name are left out.
        places: Where these columns stand in the file, from 0.
        delimiter: What stands between cells; None for Parquet.
        decimal: The decimal point.
        header: Number of the line with the names, from 0.
        blank_rows: Whether a blank line is a row with a missing value, as it is where there is one column only.
    """

    path: Path
    names: tuple[str, ...]
    places: tuple[int, ...]
    delimiter: str | None
    decimal: str = "."
    header: int = 0
    blank_rows: bool = False


def open_table(path: Path, max_mib: float = MOST_MIB) -> TableFile:
    """Return how a file holds a table, without reading it whole.

    Args:
        path: A CSV, TSV or Parquet file with names in its first line.
        max_mib: Largest size that is accepted.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; a CSV, TSV or Parquet file would work.")
    if not path.exists():
        raise InputError(f"{path} does not exist; a CSV, TSV or Parquet file would work.")
    if not path.is_file():
        raise InputError(f"{path} is a pipe or a device, and a table is read twice; a file would work.")
    size = path.stat().st_size
    if size > max_mib * 2**20:
        raise InputError(
            f"{path} has {size / 2**20:,.0f} MiB, more than {max_mib:g}; fewer rows, or --max-size with a larger "
            "number if there is memory for several times the file, would work."
        )
    suffix = path.suffix.lower()
    if suffix in _PACKED:
        raise InputError(f"{path} is packed ({suffix}); unpack it first.")
    if suffix in _OTHER:
        raise InputError(f"{path} is {_OTHER[suffix]}; save it as CSV first.")
    if size == 0:
        raise InputError(f"{path} is empty; a table with names in its first line would work.")
    if suffix in (".parquet", ".pq"):
        return _open_parquet(path)
    return _open_text(path, "\t" if suffix == ".tsv" else None)


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
    parts = _read_parquet(file, wanted) if file.delimiter is None else _read_text(file, wanted, rows)
    with contextlib.closing(parts):
        for read in parts:
            for start in range(0, len(read), rows or max(1, len(read))):  # Parquet comes as one
                part = read.iloc[start : start + (rows or len(read))][wanted]
                part.index = range(found + 1, found + 1 + len(part))
                found += len(part)
                yield part
    if not found:
        raise InputError(f"{file.path} holds names, but no rows; a table with rows would work.")


def pandas() -> Any:
    """Return the package pandas, or say which extra brings it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("tables need pandas and scikit-learn: pip install 'bayesnorm[tabular]'.") from error
    return pandas


def _open_text(path: Path, delimiter: str | None) -> TableFile:
    """Return how a CSV or TSV file holds its table, from its first lines; None finds the delimiter out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [*itertools.islice(file, SNIFFED)]
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from None
    if not any(line.strip() for line in lines):
        raise InputError(f"{path} holds nothing but blank lines; a table with names in its first line would work.")
    if "\0" in "".join(lines):
        raise InputError(f"{path} is no text; a CSV, TSV or Parquet file would work.")
    try:
        chosen = delimiter or max(DELIMITERS, key=lambda each: _regularity(lines, each))
        records = [*csv.reader(lines, delimiter=chosen, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a table ({error}); mend the file.") from None
    header = next(number for number, record in enumerate(records) if record)
    names = [name.strip() for name in records[header]]
    decimal = "," if chosen != "," and _has_decimal_commas(records[header + 1 :], chosen) else "."
    return replace(_named(path, names, chosen, decimal), header=header, blank_rows=len(names) == 1)


def _regularity(lines: list[str], delimiter: str) -> tuple[bool, int]:
    """Return whether most lines have as many cells as the first one, and more than one; and how many."""
    counts = [len(record) for record in csv.reader(lines, delimiter=delimiter) if record]
    same = sum(count == counts[0] for count in counts)
    return counts[0] > 1 and 2 * same > len(counts), counts[0]


def _has_decimal_commas(records: list[list[str]], delimiter: str) -> bool:
    """Return whether numbers have decimal commas; 1,234 alone says so only where ";" stands between cells."""
    if _has(records, r"[+-]?\d+\.\d+"):
        return False
    thousands = "" if delimiter == ";" else r"(?![+-]?[1-9]\d{0,2}(,\d{3})+$)"
    return _has(records, rf"{thousands}[+-]?\d+,\d+")


def _has(records: list[list[str]], pattern: str) -> bool:
    """Return whether a cell has a pattern."""
    return any(re.fullmatch(pattern, cell.strip()) for record in records for cell in record)


def _named(path: Path, header: list[str], delimiter: str | None, decimal: str) -> TableFile:
    """Return a table file with the names in its header, or say what is wrong with them."""
    from ..tabular.column_types import read_numbers

    places = tuple(i for i, name in enumerate(header) if name)
    names = tuple(header[i] for i in places)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: the column {quoted(twice)} is there twice; rename one of them.")
    if not names:
        raise InputError(f"{path}: no column has a name; a first line with names would work.")
    _, words = read_numbers(pandas().Series(names, dtype=object))
    if 2 * words.sum() < len(names):
        first = ", ".join(names[:3])
        raise InputError(f"{path}: the first line holds numbers ({first}, ...), not names; put names there.")
    return TableFile(path, names, places, delimiter, decimal)


def _read_text(file: TableFile, columns: Sequence[str], rows: int | None) -> Generator[Any, None, None]:
    """Give the cells of a CSV or TSV file as text, in parts of so many rows."""
    pd = pandas()
    place = dict(zip(file.names, file.places, strict=True))
    with contextlib.ExitStack() as opened:
        with _pandas_errors_in_one_line(file.path):
            reader = opened.enter_context(
                pd.read_csv(
                    file.path,
                    sep=file.delimiter,
                    skiprows=file.header,
                    header=0,
                    skip_blank_lines=not file.blank_rows,
                    index_col=False,
                    dtype=str,
                    encoding="utf-8-sig",
                    skipinitialspace=True,
                    low_memory=False,
                    iterator=True,
                )
            )
        more = True
        while more:
            with _pandas_errors_in_one_line(file.path):
                try:
                    part = reader.read(rows)
                except StopIteration:
                    return
            more = rows is not None
            frame = part.iloc[:, [place[name] for name in columns]]
            frame.columns = list(columns)
            yield frame


@contextlib.contextmanager
def _pandas_errors_in_one_line(path: Path) -> Iterator[None]:
    """Turn what pandas finds wrong with a file into an error of one line."""
    pd = pandas()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from None
    except pd.errors.ParserWarning:
        raise InputError(f"{path}: rows have more cells than the first line has names; mend the file.") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} holds no table; one with names in its first line would work.") from None
    except pd.errors.ParserError as error:
        told = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if told is None:
            raise InputError(f"{path} cannot be read as a table ({error}); mend the file.") from None
        raise InputError(
            f"{path}: line {told[2]} has {told[3]} cells, and the first line {told[1]} names; mend that line, or put "
            "quotes around cells that hold the delimiter."
        ) from None


def _not_utf8(path: Path, error: UnicodeDecodeError) -> InputError:
    """Return the error of a file in another encoding, with the command that mends it."""
    with path.open("rb") as file:
        found = "utf-16" if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin1"
    return InputError(
        f"{path} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); save it as UTF-8, for example with "
        f"`iconv -f {found} -t utf-8 {shlex.quote(path.name)} > utf8.csv`."
    )


def _pyarrow() -> Any:
    """Return the package pyarrow with its Parquet reader, or say which extra brings it."""
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError(
            "Parquet files need pyarrow: pip install 'bayesnorm[parquet]'; or save the table as CSV."
        ) from error


def _open_parquet(path: Path) -> TableFile:
    """Return how a Parquet file holds its table."""
    arrow = _pyarrow()
    try:
        names = arrow.parquet.read_schema(path).names
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({error}); write the file again.") from None
    return _named(path, [str(name) for name in names if not str(name).startswith("__index_level_")], None, ".")


def _read_parquet(file: TableFile, columns: Sequence[str]) -> Generator[Any, None, None]:
    """Give the columns of a Parquet file, with its types, as one part."""
    arrow = _pyarrow()
    try:
        yield arrow.parquet.read_table(file.path, columns=list(columns)).to_pandas(ignore_metadata=True)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{file.path} cannot be read as Parquet ({error}); write the file again.") from None
