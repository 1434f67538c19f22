"""Find the source of a table: a file (also gzipped), standard input, or a table of an SQLite database.

The first bytes of a file decide its format, so a wrong file extension does no harm. Nothing in a file is ever run.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import itertools
import sys
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal, cast

import typer

from ..errors import InputError, quoted
from .ending import UsageError

Format = Literal["text", "jsonl", "parquet", "xlsx", "sqlite"]

Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="Encoding of text files, such as cp1252.", show_default="detected")
]

MaxSize = Annotated[float, typer.Option(min=0, metavar="MIB", help="Refuse larger files.")]

# The help text for a table.
A_TABLE = (
    "Table to read: a CSV, TSV, JSON lines, Excel or Parquet file, - for standard input, or sqlite:///FILE.db?TABLE."
)

NewRows = Annotated[str, typer.Argument(help=f"{A_TABLE} It needs the columns used in training.")]

# What to do if a file is not a table.
PASS_A_TABLE = "Pass a CSV, TSV, JSON lines, Excel (.xlsx) or Parquet file."
# The name of standard input, and the prefix of a database file.
STDIN, DATABASE = "-", "sqlite:///"
GZIP, ZIP, PARQUET = b"\x1f\x8b", b"PK\3\4", b"PAR1"
# The advice for an empty file.
WITH_NAMES = "Pass a table with column names in its first line."

# Bytes from the start of a file that decide its format.
INSPECTED_BYTES = 4096

# Limits of `ContentLimit`: bytes that a cell counts at least, characters in a row, and columns.
CELL_BYTES, LONGEST_ROW, MOST_COLUMNS = 8, 2**23, 100_000

# Reading takes at most this many times --max-size of memory, and MORE_MEMORY bytes (less than the promised half a GiB,
# because a process may already hold memory that it does not use yet).
MEMORY_FACTOR, MORE_MEMORY = 16, 7 * 2**26

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
# The first bytes of files that are not tables, and the end of the message about them.
_FOREIGN = {
    b"BZh": "compressed with bzip2. Unpack it first.",
    b"\xfd7zXZ\0": "compressed with xz. Unpack it first.",
    b"\x28\xb5\x2f\xfd": "compressed with zstd. Unpack it first.",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive. Unpack it first.",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel or Office file. Save it as .xlsx or CSV first.",
    b"\x89PNG": f"a PNG image. {PASS_A_TABLE}",
    b"\xff\xd8\xff": f"a JPEG image. {PASS_A_TABLE}",
    b"GIF8": f"a GIF image. {PASS_A_TABLE}",
    b"%PDF": f"a PDF document. {PASS_A_TABLE}",
    b"\x93NUMPY": "a NumPy array. Save it as CSV first.",
    b"\x89HDF": "an HDF5 file. Save its table as CSV or Parquet first.",
    b"ARROW1": "a Feather file. Save it as Parquet or CSV first.",
    **{
        bytes([0x80, protocol]): "a Python pickle, which can run any code when it is read. Save the table as CSV first."
        for protocol in range(2, 6)
    },
}
_WORDS = {".json": "JSON", ".html": "HTML"}
# Control characters that text does not contain: all but tab, line feed, form feed, carriage return and DOS end of file.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\f\r\x1a"))
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


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
            raise _too_large(self.source, f"more than {self.source.max_mib:g} MiB")

    def add_cells(self, size: int, cells: int) -> None:
        """Count cells, and their characters."""
        self.cell_bytes += max(size, CELL_BYTES * cells)
        if self.cell_bytes > self.most:
            raise _too_large(self.source, f"more than {self.source.max_mib:g} MiB of cells, of at least 8 bytes each")

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
    """

    argument: str
    path: Path | None
    copy: IO[bytes] | None = None
    table: str | None = None
    max_mib: float = 1024

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
        """Yield a stream of the bytes, unpacked if they are gzipped."""
        with self.packed_stream() as file:
            is_packed = file.read(2) == GZIP
            file.seek(0)
            try:
                yield gzip.GzipFile(fileobj=file, mode="rb") if is_packed else file  # type: ignore[misc]
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"{self} cannot be unpacked ({error}). Compress the file again.") from None

    @contextlib.contextmanager
    def open_unpacked(self) -> Iterator[IO[bytes]]:
        """Yield a stream of the unpacked bytes in which seeking is fast."""
        with self.open() as file:
            if not isinstance(file, gzip.GzipFile):
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


def find_source(data: str | Path, max_mib: float, encoding: str | None = None) -> Source:
    """Return the source of a table, or raise an error that says why it cannot be read.

    Args:
        data: A file, "-" for standard input, or a table of a database such as sqlite:///file.db?table.
        max_mib: Largest accepted size.
        encoding: The encoding of text, if the user named one.
    """
    argument = str(data)
    if argument == STDIN:
        return _copy_standard_input(max_mib, encoding)
    file, _, table = (
        argument.removeprefix(DATABASE).partition("?") if argument.startswith(DATABASE) else (argument, "", None)
    )
    path = Path(file)
    if path.is_dir():
        raise InputError(f"{path} is a folder. {PASS_A_TABLE}")
    if not path.exists():
        raise InputError(f"{path} does not exist. {PASS_A_TABLE}")
    if not path.is_file():
        raise InputError(
            f"{path} is a pipe or a device, but tables are read twice. Pass a file, or - for standard input."
        )
    source, size = Source(argument, path, table=table, max_mib=max_mib), path.stat().st_size
    if size > max_mib * 2**20:
        raise _too_large(source, f"{size / 2**20:,.0f} MiB, more than {max_mib:g} MiB")
    if size == 0:
        raise InputError(f"{path} is empty. {WITH_NAMES}")
    return source


def _copy_standard_input(max_mib: float, encoding: str | None) -> Source:
    """Return standard input, which is copied to a temporary file because tables are read twice."""
    copy: Any = tempfile.SpooledTemporaryFile(2**24)  # noqa: SIM115 (closed with the source)
    source = Source(STDIN, None, copy, max_mib=max_mib)
    weakref.finalize(source, copy.close)
    limit = ContentLimit(source)
    while sys.stdin is not None and (block := sys.stdin.buffer.read(2**20)):
        if not limit.bytes:
            _require_table(source, block[:INSPECTED_BYTES], binary=encoding is not None)
        limit.add_bytes(len(block))
        copy.write(block)
    if not limit.bytes:
        raise InputError(f"{source} is empty. {WITH_NAMES}")
    return source


def detect_format(source: Source, encoding: str | None) -> Format:
    """Return the format of a source, from its first bytes and its extension; raise an error if it is not a table.

    Args:
        source: The source.
        encoding: The encoding of text, if the user named one.
    """
    if source.table is not None:
        return "sqlite"
    with source.open() as file:
        start = file.read(INSPECTED_BYTES)
    suffixes = [suffix.lower() for suffix in (source.path.suffixes if source.path else [])]
    suffix = next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    if start.startswith(b"SQLite format 3\0"):
        raise InputError(f"{source} is an SQLite database. Pass {DATABASE}{source}?TABLE instead.")
    if start.startswith(PARQUET):
        return "parquet"
    if start.startswith(ZIP):
        if _SUFFIXES.get(suffix) == "xlsx" or _is_workbook(source):
            return "xlsx"
        raise InputError(f"{source} is a ZIP archive. Unpack it first.")
    if suffix in _SUFFIXES:
        _require_table(source, start, binary=True)
        return _SUFFIXES[suffix]
    if suffix in _WORDS:
        raise InputError(f"{source} is {_WORDS[suffix]}. Save it as CSV or as JSON lines (.jsonl) first.")
    _require_table(source, start, binary=encoding is not None)
    return "jsonl" if start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b'{"') else "text"


def _require_table(source: Source, start: bytes, *, binary: bool = False) -> None:
    """Raise an error if the first bytes of a file show that it is not a table.

    Args:
        source: The source.
        start: The first bytes.
        binary: Whether bytes that are not text are accepted.
    """
    for mark, words in _FOREIGN.items():
        if start.startswith(mark) and not (mark.isalnum() and start.isascii() and _is_text(start)):
            raise InputError(f"{source} is {words}")
    if not binary and not _is_text(start) and not start.startswith((GZIP, ZIP, PARQUET)):
        raise InputError(f"{source} is not a text file. {PASS_A_TABLE}")


def detect_encoding(source: Source, encoding: str | None) -> str:
    """Return an encoding that reads the whole text: from its byte order mark, else UTF-8, cp1252 or latin-1.

    Args:
        source: The source.
        encoding: The encoding, if the user named one.
    """
    if encoding is not None:
        try:
            "".encode(encoding)
        except (LookupError, ValueError):
            raise UsageError(
                f"--encoding must be an encoding that Python knows, such as utf-8 or cp1252, got {quoted(encoding)}."
            ) from None
        if not _reads(source, encoding):
            raise InputError(
                f"--encoding: {source} is not {encoding} text. Leave the option out, or choose another encoding."
            )
        return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    with source.open() as file:
        start = file.read(4)
    default = next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8-sig")
    candidates = (default, "cp1252", "latin-1") if default == "utf-8-sig" else (default,)
    readable = next((name for name in candidates if _reads(source, name)), None)
    if readable is None:
        raise InputError(f"{source} begins like UTF-16 text, but is not valid UTF-16. Save the file again.")
    return readable


def _is_text(start: bytes) -> bool:
    """Return whether the first bytes of a file can be text."""
    marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return marked or not start.translate(None, bytes(set(range(256)) - set(_CONTROL)))


def _reads(source: Source, encoding: str) -> bool:
    """Return whether an encoding can read the whole source."""
    decoder: Any = codecs.getincrementaldecoder(encoding)()
    try:
        for block in source.blocks():
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    return True


def _is_workbook(source: Source) -> bool:
    """Return whether a ZIP archive is an Excel file."""
    try:
        with source.open_unpacked() as file, zipfile.ZipFile(file) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def _too_large(source: Source, size: str) -> InputError:
    return InputError(
        f"{source} has {size}. Use fewer rows, or raise --max-size if there is memory for several times the file."
    )
