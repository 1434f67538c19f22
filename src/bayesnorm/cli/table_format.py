"""Find a table and detect its format: a file (also gzipped), standard input, or a table of an SQLite database.

The first bytes of a file decide its format, so a wrong file extension does no harm. Nothing in a file is ever run.
"""

from __future__ import annotations

import codecs
import re
import sys
import tempfile
import weakref
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError, quoted
from .ending import UsageError
from .table_source import DATABASE, GZIP, PASS_A_TABLE, WITH_NAMES, ContentLimit, Source, escape, too_large

Format = Literal["text", "jsonl", "parquet", "xlsx", "sqlite"]

STDIN = "-"
ZIP, PARQUET = b"PK\3\4", b"PAR1"

# Bytes from the start of a file that decide its format.
INSPECTED_BYTES = 4096

_SUFFIXES: dict[str, Format] = {".parquet": "parquet", ".pq": "parquet", ".xlsx": "xlsx", ".xlsm": "xlsx"}
_SUFFIXES |= {".jsonl": "jsonl", ".ndjson": "jsonl"}
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
# The start of an array of objects.
JSON_ARRAY = re.compile(rb"\s*\[\s*\{")
_WORDS = {".json": "JSON", ".html": "HTML"}
# Control characters that text does not contain: all but tab, line feed, form feed, carriage return and DOS end of file.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\f\r\x1a"))
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


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
        raise too_large(source, f"{size / 2**20:,.0f} MiB, more than {max_mib:g} MiB")
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


def inside_archive(source: Source) -> Source:
    """Return the source of the only file in a ZIP archive; any other source unchanged.

    Args:
        source: The source.
    """
    if source.path is None or source.table is not None or source.path.suffix.lower() in _SUFFIXES:
        return source
    with source.packed_stream() as file:
        if file.read(len(ZIP)) != ZIP or _is_workbook(source):
            return source
        try:
            names = zipfile.ZipFile(file).namelist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise InputError(f"{source} cannot be unpacked ({escape(str(error))}). Compress the file again.") from None
    tables = [name for name in names if not name.endswith("/") and not name.startswith(("__MACOSX/", "."))]
    if len(tables) != 1:
        raise InputError(f"{source} is a ZIP archive of {len(tables)} files. Unpack it, and pass one of them.")
    return replace(source, member=tables[0])


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
    path = Path(source.member) if source.member else source.path
    suffixes = [suffix.lower() for suffix in (path.suffixes if path else [])]
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
    if JSON_ARRAY.match(start.removeprefix(codecs.BOM_UTF8)):
        return "jsonl"
    if suffix in _WORDS:
        raise InputError(
            f"{source} is {_WORDS[suffix]}, but no array of objects. Save it as CSV or as JSON lines (.jsonl) first."
        )
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
