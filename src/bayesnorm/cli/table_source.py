"""The source of a table, which yields its bytes or lines; the limit of what is read from it; and its cells."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import math
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from bayesnorm_runtime import MISSING as MISSING

from ..errors import InputError, load_package

# What to do if a file is not a table.
PASS_A_TABLE = "Pass a CSV, TSV, JSON lines, Excel (.xlsx) or Parquet file."
# The prefix of a database file, and the first bytes of gzipped data.
DATABASE, GZIP = "sqlite:///", b"\x1f\x8b"
# The advice for an empty file.
WITH_NAMES = "Pass a table with column names in its first line."

# Characters that can steer a terminal or that no file can contain: control characters except for tabs and line ends,
# and halves of surrogate pairs.
CONTROL = re.compile("[\0-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")

# Limits of `ContentLimit`: bytes that a cell counts at least, characters in a row, and columns.
CELL_BYTES, LONGEST_ROW, MOST_COLUMNS = 8, 2**23, 100_000

# Reading takes at most this many times --max-size of memory, and MORE_MEMORY bytes (less than the promised half a GiB,
# because a process may already hold memory that it does not use yet).
MEMORY_FACTOR, MORE_MEMORY = 16, 7 * 2**26


class ContentLimit:
    """Counts the content of a table while it is read, and raises an error above the limits.

    The unpacked bytes and the cells may each take at most `--max-size`. A cell counts its characters, at least 8 bytes.
    A row has at most 8 MiB and 100,000 cells, so that parts of a table are small.

    Args:
        source: The table.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.most = int(min(source.max_mib, 2**30) * 2**20)
        self.bytes = self.cell_bytes = 0

    def add_bytes(self, size: int) -> None:
        """Count unpacked bytes."""
        self.bytes += size
        if self.bytes > self.most:
            raise too_large(self.source, f"more than {self.source.max_mib:g} MiB")

    def add_cells(self, size: int, cells: int) -> None:
        """Count cells, and their characters."""
        self.cell_bytes += max(size, CELL_BYTES * cells)
        if self.cell_bytes > self.most:
            raise too_large(self.source, f"more than {self.source.max_mib:g} MiB of cells, of at least 8 bytes each")

    def add_rows(self, sizes: Iterable[int], cells: int) -> None:
        """Count the cells of rows with these numbers of characters."""
        self.add_cells(sum(map(max, sizes, itertools.repeat(CELL_BYTES * cells))), 0)

    def add_row(self, size: int, cells: int) -> None:
        """Count the cells of a row, and their characters."""
        self.require_row(size, cells)
        self.add_cells(size, cells)

    def require_row(self, size: int, cells: int = 0) -> None:
        """Raise an error for a row with too many characters or cells."""
        if size > LONGEST_ROW:
            raise InputError(f"{self.source} has a row of more than {LONGEST_ROW >> 20} MiB. Leave long cells out.")
        if cells > MOST_COLUMNS:
            raise InputError(f"{self.source} has more than {MOST_COLUMNS:,} columns. Use fewer columns.")

    @contextlib.contextmanager
    def bounded_memory(self) -> Iterator[None]:
        """Let reading take at most 16 times `--max-size` and half a GiB more memory, if the system can enforce it."""
        try:
            import resource

            pages = int(Path("/proc/self/statm").read_text().split()[0])
        except (ImportError, OSError):
            yield
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + MEMORY_FACTOR * self.most + MORE_MEMORY
        limit = min([limit, *(bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        except MemoryError:
            needs = f"{self.source} needs more than {MEMORY_FACTOR} times --max-size of memory"
            raise InputError(f"{needs}. Use fewer rows, or save the table as CSV.") from None
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@dataclass(frozen=True)
class Source:
    """The source of a table.

    Args:
        argument: The argument of the user, for messages.
        path: The file; None for standard input.
        copy: A temporary file with the bytes of standard input.
        table: The table of a database; "" if none was named, None for all other files.
        max_mib: Largest accepted size, after unpacking.
        member: Name of the file in a ZIP archive; "" for other files.
    """

    argument: str
    path: Path | None
    copy: IO[bytes] | None = None
    table: str | None = None
    max_mib: float = 1024
    member: str = ""

    def __str__(self) -> str:
        return "standard input" if self.path is None else self.argument

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        if self.path is None:
            return str(self)
        return f"{self.path.name}?{self.table}" if self.table else self.path.name

    @contextlib.contextmanager
    def packed_stream(self) -> Iterator[Any]:
        """Yield a stream of the bytes without unpacking them."""
        if self.copy is not None:
            self.copy.seek(0)
            yield self.copy
        else:
            with cast(Path, self.path).open("rb") as file:
                yield file

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield a stream of the bytes, unpacked if they are gzipped or in a ZIP archive."""
        with self.packed_stream() as file:
            if self.member:
                with self._open_member(file) as part:
                    yield part
                return
            is_packed = file.read(2) == GZIP
            file.seek(0)
            try:
                yield gzip.GzipFile(fileobj=file, mode="rb") if is_packed else file  # type: ignore[misc]
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"{self} cannot be unpacked ({error}). Compress the file again.") from None

    @contextlib.contextmanager
    def _open_member(self, file: IO[bytes]) -> Iterator[IO[bytes]]:
        """Yield a stream of the unpacked bytes of a file in a ZIP archive."""
        try:
            archive = zipfile.ZipFile(file)
            part = archive.open(self.member)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, KeyError, ValueError, OSError) as error:
            raise InputError(f"{self} cannot be unpacked ({escape(str(error))}). Compress the file again.") from None
        try:
            with archive, part:
                yield part
        except (EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{self} cannot be unpacked ({escape(str(error))}). Compress the file again.") from None

    @contextlib.contextmanager
    def open_unpacked(self) -> Iterator[IO[bytes]]:
        """Yield a stream of the unpacked bytes in which seeking is fast."""
        with self.open() as file:
            if not self.member and not isinstance(file, gzip.GzipFile):
                yield file
                return
            with tempfile.TemporaryFile() as copy:
                for block in self.blocks():
                    copy.write(block)
                copy.seek(0)
                yield copy

    def blocks(self) -> Iterator[bytes]:
        """Yield the unpacked bytes in blocks; raise an error if there are more than accepted."""
        limit = ContentLimit(self)
        with self.open() as file:
            while block := file.read(2**20):
                limit.add_bytes(len(block))
                yield block

    def lines(self, encoding: str) -> Iterator[str]:
        """Yield the lines of the text, with their original line ends; raise an error for a line that is too long."""
        return self.text_blocks(encoding, 0)

    def text_blocks(self, encoding: str, size: int = 2**18) -> Iterator[str]:
        """Yield the text in blocks of about this many characters, which end where lines end."""
        limit = ContentLimit(self)
        with self.open() as file:
            text = io.TextIOWrapper(file, encoding, newline="")
            try:
                while (start := text.read(size)) + (line := text.readline(LONGEST_ROW + 1)):
                    limit.add_bytes(len(start) + len(line))
                    limit.require_row(len(line))
                    yield start + line
            except UnicodeError:
                raise InputError(f"{self} is not {encoding} text any more. It was changed while it was read.") from None
            finally:
                text.detach()


def too_large(source: Source, size: str) -> InputError:
    """Return the error for a table that is larger than accepted."""
    return InputError(
        f"{source} has {size}. Use fewer rows, or raise --max-size if there is memory for several times the file."
    )


def as_labels(values: Iterable[Any]) -> NDArray[np.object_]:
    """Return values as text objects; an array of a fixed width would take the longest text's memory for every one."""
    return np.array([*map(str, values)], dtype=object)


def is_missing(cell: Any) -> bool:
    """Return whether a cell is empty or contains a word for a missing value."""
    return cell is None or (isinstance(cell, str) and cell.strip() in MISSING)


def escape(text: str) -> str:
    r"""Return a text with control characters written as Python writes them, such as \x1b."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def text_frame(columns: Sequence[Sequence[str]], names: Sequence[str]) -> Any:
    """Return columns of text, in which control characters have been replaced, as a data frame."""
    pd, missing = pandas(), dict[str, Any].fromkeys(MISSING)
    texts = (
        pd.array(cells if MISSING.isdisjoint(cells) else [*map(missing.get, cells, cells)], dtype=str)
        for cells in columns
    )
    return pd.DataFrame(dict(zip(names, texts, strict=True)))


def data_frame(rows: Sequence[Sequence[Any]], names: Sequence[str], places: Sequence[int]) -> Any:
    """Return columns of a table, whose cells have types, as a data frame of objects.

    Args:
        rows: The rows of the table.
        names: The names of the columns.
        places: The positions of these columns in the rows.
    """
    values: dict[str, Any] = {}
    columns = [*zip(*rows, strict=True)]
    cells = {name: plain_cells(columns[place], values) for name, place in zip(names, places, strict=True)}
    return pandas().DataFrame(cells, columns=list(names), dtype=object)


def plain_cells(cells: Iterable[Any], values: dict[str, Any]) -> list[Any]:
    """Return cells that have types: missing text as None, without control characters or numbers too large for a float.

    Args:
        cells: The cells.
        values: The texts so far; equal texts become the same object.
    """

    def value(cell: Any) -> Any:
        if isinstance(cell, str):
            if cell not in values:
                values[cell] = None if is_missing(cell) else escape(cell)
            return values[cell]
        if isinstance(cell, int) and cell.bit_length() >= sys.float_info.max_exp:
            return math.copysign(math.inf, 1 if cell > 0 else -1)
        return cell

    return [*map(value, cells)]


def pandas() -> Any:
    """Return the package pandas, or raise an error that says how to install it."""
    return load_package("pandas", "Tables need scikit-learn and pandas. Run: pip install scikit-learn pandas")
