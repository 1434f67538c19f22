"""Find the source of a table: a file (also gzipped), standard input, or a table of an SQLite database.

The first bytes of a file decide its format, so a wrong file extension does no harm. Nothing in a file is ever run.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal

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
GZIP = b"\x1f\x8b"

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
    b"PK\3\4": "a ZIP archive. Unpack it first.",
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


@dataclass(frozen=True)
class Source:
    """The source of a table.

    Args:
        argument: The argument of the user, for messages.
        path: The file; None for standard input.
        content: The bytes of standard input.
        table: The table of a database; "" if none was named, None for all other files.
        max_mib: Largest accepted size, after unpacking.
    """

    argument: str
    path: Path | None
    content: bytes = b""
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

    def packed_stream(self) -> io.BytesIO | io.BufferedReader:
        """Return a stream of the bytes without unpacking them."""
        return io.BytesIO(self.content) if self.path is None else self.path.open("rb")

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield a stream of the bytes, unpacked if they are gzipped."""
        with self.packed_stream() as file:
            is_packed = file.read(2) == GZIP
            file.seek(0)
            try:
                yield gzip.GzipFile(fileobj=file) if is_packed else file  # type: ignore[misc]
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"{self} cannot be unpacked ({error}). Compress the file again.") from None

    @contextlib.contextmanager
    def open_text(self, encoding: str) -> Iterator[IO[str]]:
        """Yield a stream of the text, with its original line ends."""
        with self.open() as file, io.TextIOWrapper(file, encoding, newline="") as text:
            yield text

    def blocks(self) -> Iterator[bytes]:
        """Yield the unpacked bytes in blocks; raise an error if there are more than accepted."""
        size = 0
        with self.open() as file:
            while block := file.read(2**20):
                size += len(block)
                if size > self.max_mib * 2**20:
                    raise _too_large(self, f"more than {self.max_mib:g} MiB")
                yield block


def find_source(data: str | Path, max_mib: float) -> Source:
    """Return the source of a table, or raise an error that says why it cannot be read.

    Args:
        data: A file, "-" for standard input, or a table of a database such as sqlite:///file.db?table.
        max_mib: Largest accepted size.
    """
    argument = str(data)
    if argument == STDIN:
        content, size = bytearray(), max_mib * 2**20
        source = Source(argument, None)
        while sys.stdin is not None and (block := sys.stdin.buffer.read(2**20)):
            content += block
            if len(content) > size:
                raise _too_large(source, f"more than {max_mib:g} MiB")
        if not content:
            raise InputError(f"{source} is empty. Pass a table with column names in its first line.")
        return Source(argument, None, bytes(content), max_mib=max_mib)
    table = None
    if argument.startswith(DATABASE):
        file, _, table = argument.removeprefix(DATABASE).partition("?")
        path = Path(file)
    else:
        path = Path(argument)
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
        raise InputError(f"{path} is empty. Pass a table with column names in its first line.")
    return source


def detect_format(source: Source, encoding: str | None) -> Format:
    """Return the format of a source, from its first bytes and its extension; raise an error if it is not a table.

    Args:
        source: The source.
        encoding: The encoding of text, if the user named one.
    """
    with source.open() as file:
        start = file.read(4096)
    suffixes = [suffix.lower() for suffix in (source.path.suffixes if source.path else [])]
    suffix = next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    if source.table is not None:
        return "sqlite"
    if start.startswith(b"SQLite format 3\0"):
        raise InputError(f"{source} is an SQLite database. Pass {DATABASE}{source}?TABLE instead.")
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\3\4") and (_is_workbook(source) or _SUFFIXES.get(suffix) == "xlsx"):
        return "xlsx"
    for mark, words in _FOREIGN.items():
        if start.startswith(mark) and not (mark.isalnum() and start.isascii() and _is_text(start)):
            raise InputError(f"{source} is {words}")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if suffix in _WORDS:
        raise InputError(f"{source} is {_WORDS[suffix]}. Save it as CSV or as JSON lines (.jsonl) first.")
    if encoding is None and not _is_text(start):
        raise InputError(f"{source} is not a text file. {PASS_A_TABLE}")
    return "jsonl" if start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b'{"') else "text"


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
    """Return whether a ZIP archive is an Excel file; raise an error if it is too large once unpacked."""
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, OSError):
        return False
    if not any(part.filename == "xl/workbook.xml" for part in parts):
        return False
    size = sum(part.file_size for part in parts)
    if size > source.max_mib * 2**20:
        raise _too_large(source, f"{size / 2**20:,.0f} MiB once unpacked, more than {source.max_mib:g} MiB")
    return True


def _too_large(source: Source, size: str) -> InputError:
    return InputError(
        f"{source} has {size}. Use fewer rows, or raise --max-size if there is memory for several times the file."
    )
