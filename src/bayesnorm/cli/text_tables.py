"""Read tables of text line by line: CSV files, whose cells are text, and JSON lines, whose cells have types."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, quoted
from ..words import format_count
from .table_source import CONTROL, LONGEST_ROW, PASS_A_TABLE, WITH_NAMES, ContentLimit, Source, escape
from .written_numbers import without_marks

DELIMITERS = (",", ";", "\t", "|")

# The lines from the start of a file that decide its delimiter and decimal point, or their characters.
INSPECTED_LINES, INSPECTED_CHARACTERS = 100, 2**20

_BLANKS = re.compile(r"\s*")

# Bytes from the start of a file that show whether it contains an array.
INSPECTED_BYTES = 4096

# Cells of the table for each entry of JSON lines. A new key in every line would make a huge table of a small file.
MOST_CELLS_FOR_AN_ENTRY = 1_000

# A line after the last one of a file that ends inside quotes.
_END = "\0"

# Python's default, 131,072 characters, is less than the first line of a wide table has.
csv.field_size_limit(LONGEST_ROW)


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file.

    Args:
        header: The column names, from the first line that is not blank.
        line: Number of this line, from 0.
        delimiter: The delimiter between cells.
        decimal: The decimal point.
    """

    header: tuple[str, ...]
    line: int
    delimiter: str
    decimal: str


def detect_csv(source: Source, encoding: str) -> CsvFormat:
    """Return the format of a CSV file, from its first lines."""
    lines: list[str] = []
    size = 0
    for line in source.lines(encoding):
        lines.append(line)
        size += len(line)
        if len(lines) == INSPECTED_LINES or (size > INSPECTED_CHARACTERS and line.strip()):
            break
    if not any(line.strip() for line in lines):
        raise InputError(f"{source} contains only blank lines. {WITH_NAMES}")
    if "\0" in "".join(lines):
        raise InputError(f"{source} is not a text file. {PASS_A_TABLE}")
    by_suffix = "\t" if source.path and ".tsv" in map(str.lower, source.path.suffixes[-2:]) else None
    try:
        delimiter = by_suffix or max(DELIMITERS, key=lambda candidate: _regularity(lines, candidate))
        records = [*csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(f"{source} cannot be read as a table ({error}). Correct the file.") from None
    number = next(number for number, record in enumerate(records) if record)
    decimal = "," if delimiter != "," and _has_decimal_commas(records[number + 1 :], delimiter) else "."
    return CsvFormat(tuple(name.strip() for name in records[number]), number, delimiter, decimal)


def csv_columns(
    source: Source, encoding: str, text_format: CsvFormat, places: Sequence[int], limit: ContentLimit
) -> Iterator[list[Sequence[str]]]:
    """Yield the columns at some places of a CSV file in parts, with "" for cells that a line does not have.

    Blocks of simple lines are split at their delimiters, which is fast. Python's reader reads the others.
    """
    width, blocks, lines = len(text_format.header), source.text_blocks(encoding), deque[str]()
    size = number = split = 0

    def next_lines() -> Iterator[str]:
        nonlocal size
        while lines or (block := next(blocks, None)):
            if not lines:
                lines.extend(io.StringIO(block, newline=""))
            line = lines.popleft()
            size += len(line)
            limit.require_row(size)
            yield line if line.rstrip("\r\n").isprintable() else escape(line)
        yield _END

    reader = csv.reader(next_lines(), delimiter=text_format.delimiter, skipinitialspace=True)
    for block in blocks:
        simple_lines = _simple_lines(block, text_format) if number > text_format.line else None
        if simple_lines is not None:
            split += len(simple_lines)
            limit.add_rows(map(len, simple_lines), width)
            texts = text_format.delimiter.join(simple_lines).split(text_format.delimiter)
            yield [texts[place::width] for place in places]
            continue
        lines.extend(io.StringIO(block, newline=""))
        rows: list[list[str]] = []
        while lines:
            try:
                record = next(reader)
            except csv.Error as error:
                raise InputError(f"{source} cannot be read as a table ({error}). Correct the file.") from None
            if record and record[-1].endswith(_END):
                raise InputError(
                    f"{source} cannot be read as a table (it ends inside a quoted cell). Add the closing quote."
                )
            cells = len(record)
            if number > text_format.line and (width == 1 or cells > 1 or (cells and record[0].strip())):
                if cells != width:
                    if cells > width + 1 or (cells > width and record[-1]):
                        raise InputError(
                            f"{source}: line {split + reader.line_num} has {cells} cells, but the first line has "
                            f"{width} names. Correct that line, or put quotes around cells that contain the delimiter."
                        )
                    record = [*record[:width], *[""] * (width - cells)]
                limit.add_cells(size, width)
                rows.append(record)
            number, size = number + 1, 0
        columns = [*zip(*rows, strict=True)]
        if rows:
            yield [columns[place] for place in places]


def json_names(source: Source, encoding: str, limit: ContentLimit) -> list[str]:
    """Return the names in all lines of a file with one JSON object per line."""
    names: dict[str, None] = {}
    lines = entries = 0
    for record, _ in _json_records(source, encoding):
        names.update(dict.fromkeys(record))
        limit.require_row(0, len(names))
        lines, entries = lines + 1, entries + max(len(record), 1)
    if lines * len(names) > MOST_CELLS_FOR_AN_ENTRY * entries:
        raise InputError(
            f"{source} has {len(names):,} different keys, but {entries / lines:.1f} in a line on average. "
            "Use the same keys in every line."
        )
    return [*names]


def json_rows(source: Source, encoding: str, names: Sequence[str], limit: ContentLimit) -> Iterator[Sequence[Any]]:
    """Yield the rows of a file with one JSON object per line, with None for names that a line does not have."""
    for record, size in _json_records(source, encoding):
        limit.add_cells(size, len(names))
        yield [*map(record.get, names)]


def _json_records(source: Source, encoding: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the objects of a file with one JSON object per line or with one array of them, and their characters."""
    if _is_array(source):
        yield from _array_records(source, encoding)
        return
    for number, line in enumerate(source.lines(encoding), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.strip(), object_pairs_hook=_record)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: line {number} is not JSON ({error}). Correct that line.") from None
        if not isinstance(record, dict):
            raise InputError(
                f'{source}: line {number} is not a JSON object. Every line must be an object such as {{"a": 1}}.'
            )
        yield record, len(line)


def _is_array(source: Source) -> bool:
    """Return whether a file of JSON contains an array instead of lines."""
    with source.open() as file:
        return file.read(INSPECTED_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def _array_records(source: Source, encoding: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the objects of an array, and their characters; only a part of the text is held at a time."""
    texts, decoder = codecs.iterdecode(source.blocks(), encoding), json.JSONDecoder(object_pairs_hook=_record)
    text, place, number, expected = "", 0, 0, "["
    while True:
        blanks = _BLANKS.match(text, place)
        place = blanks.end() if blanks else place
        if place == len(text):
            text, place = next(texts, ""), 0
            if not text and not expected:
                return
            if text:
                continue
        if not text or not expected or text[place] not in expected:
            raise InputError(
                f"{source}: the array breaks off after {format_count(number, 'object')}. Every entry must be an object "
                'such as {"a": 1}.'
            )
        if text[place] == "{":
            record, end, text, place = _next_object(source, decoder, text, place, texts, number + 1)
            yield record, end - place
            number, place, expected = number + 1, end, ",]"
        else:
            expected = {"[": "{]", ",": "{", "]": ""}[text[place]]
            place += 1


def _next_object(
    source: Source, decoder: json.JSONDecoder, text: str, place: int, texts: Iterator[str], number: int
) -> tuple[dict[str, Any], int, str, int]:
    """Return an object, where it ends, the text, and where the object begins in it; more text is added if needed."""
    limit = ContentLimit(source)
    while True:
        try:
            record, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            limit.require_row(len(text) - place)
            more = None if "occurs twice" in str(error) else next(texts, None)
            if more is None:
                raise InputError(f"{source}: object {number} is not JSON ({error}). Correct the file.") from None
            text, place = text[place:] + more, 0
        else:
            limit.require_row(end - place)
            return record, end, text, place


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, or raise an error if it has a key twice."""
    record: dict[str, Any] = {}
    for name, value in pairs:
        if name in record:
            raise ValueError(f"the key {quoted(name)} occurs twice")
        record[name] = value
    return record


def _simple_lines(block: str, text_format: CsvFormat) -> list[str] | None:
    """Return the lines of a text without line ends, or None unless each has a cell for every name and no quotes."""
    text, delimiter = block.replace("\r\n", "\n").removesuffix("\n"), text_format.delimiter
    if len(text) > LONGEST_ROW or '"' in text or "\r" in text:
        return None
    if not text.replace("\n", "").isprintable() and CONTROL.search(text):
        return None
    if text.startswith(" ") or "\n " in text or f"{delimiter} " in text:
        text = re.sub(rf"(^|{re.escape(delimiter)}) +", r"\1", text, flags=re.MULTILINE)
    lines = text.split("\n")
    counts = {line.count(delimiter) for line in lines}
    return lines if counts == {len(text_format.header) - 1} else None


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
