"""Write predictions as CSV or as an Excel sheet; a file is written completely or not at all."""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import BayesNormError, MissingExtraError
from ..files import replacing
from .printing import standard_output
from .spreadsheet import harmless_table

# Stands for standard output.
STDOUT = Path("-")

# Largest number of rows of an Excel sheet, including the header.
MOST_SHEET_ROWS = 1_048_576

# Smallest and largest column width of a sheet, in characters.
NARROWEST, WIDEST = 10, 60

# Characters that a sheet cannot hold, and text that is exactly a number: no leading zeros, at most 15 digits.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
PLAIN_NUMBER = re.compile(r"-?(?=.{1,16}$)(0|[1-9]\d*)(\.\d+)?")

Write = Callable[[Any], None]
"""A function that writes the next rows, given as a data frame."""


def is_sheet(out: Path) -> bool:
    """Return whether a file name is that of an Excel sheet."""
    return out.suffix.lower() == ".xlsx"


@contextlib.contextmanager
def prediction_file(out: Path, *, spreadsheet_safe: bool) -> Iterator[Write]:
    """Yield a function that writes the next rows.

    Args:
        out: A CSV file, an .xlsx file, or - for standard output.
        spreadsheet_safe: Whether to mark CSV text that a spreadsheet would run as a formula; .xlsx does not need it.
    """
    if out == STDOUT:
        with standard_output() as stream:
            yield _csv(stream, spreadsheet_safe)
        return
    try:
        with replacing(out) as file:
            if is_sheet(out):
                with _sheet(file, out) as write:
                    yield write
                return
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            try:
                yield _csv(text, spreadsheet_safe)
            finally:
                text.detach()
    except OSError as error:
        if error.filename is None:  # such as on a full disk
            error.filename = str(out)
        raise


def excel() -> Any:
    """Return the package openpyxl, or raise an error that says how to install it."""
    try:
        return importlib.import_module("openpyxl")
    except ImportError as error:
        raise MissingExtraError(
            "--out: Excel files need openpyxl. Run: pip install openpyxl, or choose a name that ends in .csv."
        ) from error


def _csv(stream: IO[str], spreadsheet_safe: bool) -> Write:
    header = True

    def write(frame: Any) -> None:
        nonlocal header
        shown = harmless_table(frame) if spreadsheet_safe else frame
        shown.to_csv(stream, index=False, header=header, lineterminator="\n", float_format=_digits)
        header = False

    return write


def _digits(value: float) -> str:
    """Write a number at full precision, and whole numbers without a decimal point."""
    return repr(float(value)).removesuffix(".0")


@contextlib.contextmanager
def _sheet(file: IO[bytes], out: Path) -> Iterator[Write]:
    """Yield a function that writes rows to the sheet of an Excel file; the header is bold and stays in view."""
    package = excel()
    cells, styles = (importlib.import_module(f"openpyxl.{name}") for name in ("cell", "styles"))
    book = package.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.freeze_panes = "A2"
    formats: list[str] = []
    rows = 1

    def cell(value: Any, shown: str) -> Any:
        found = cells.WriteOnlyCell(sheet, value=None)
        if isinstance(value, float) and math.isinf(value):
            found.value = _digits(value)  # as text, because a sheet has no infinity
        elif isinstance(value, str):
            number = PLAIN_NUMBER.fullmatch(value)
            found.value = float(value) if number and "." in value else int(value) if number else CONTROL.sub(" ", value)
            if not number:
                found.data_type = "s"  # text, so that Excel does not run it as a formula
        elif value == value and value is not None:
            found.value = value.item() if hasattr(value, "item") else value
            if shown and isinstance(found.value, float):
                found.number_format = shown
        return found

    def write(frame: Any) -> None:
        nonlocal rows
        if rows + len(frame) > MOST_SHEET_ROWS:
            raise BayesNormError(
                f"--out: {out} needs more than the {MOST_SHEET_ROWS:,} rows of an Excel sheet. Choose a name that ends "
                "in .csv."
            )
        if not formats:
            _first_line(sheet, frame, lambda name: cell(name, ""), styles.Font(bold=True))
            formats.extend(_number_format(frame[name]) for name in frame)
        for row in frame.astype(object).itertuples(index=False, name=None):
            sheet.append([cell(value, shown) for value, shown in zip(row, formats, strict=True)])
        rows += len(frame)

    try:
        yield write
        book.save(file)
    except BaseException:
        if formats:  # openpyxl buffers rows in a temporary file
            sheet.close()
        raise


def _first_line(sheet: Any, frame: Any, cell: Callable[[str], Any], font: Any) -> None:
    """Write the column names, and set the column widths to fit the contents."""
    letters = importlib.import_module("openpyxl.utils").get_column_letter
    for place, name in enumerate(frame, 1):
        longest = max(len(str(name)), *(len(str(value)) for value in frame[name].iloc[:50]), NARROWEST)
        sheet.column_dimensions[letters(place)].width = min(longest + 2, WIDEST)
    names = [cell(str(name)) for name in frame]
    for each in names:
        each.font = font
    sheet.append(names)


def _number_format(column: Any) -> str:
    """Return the number format of a column: thousands separators, and as many decimals as the values have."""
    if column.dtype.kind != "f":
        return ""
    decimals = max((len(_digits(value).partition(".")[2]) for value in column if "e" not in _digits(value)), default=0)
    return "#,##0" + ("." + "0" * decimals if decimals else "")
