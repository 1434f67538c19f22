"""Write CSV, Parquet and Excel files: completely or not at all, and over an existing file only with `--force`.

CSV files contain labels exactly as they are in the training table. A spreadsheet runs text that looks like a formula,
and a label of an untrusted table can be =HYPERLINK(...). On request, such text is marked.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import BayesNormError, load_package
from ..words import format_count
from ..writing import replacing, require_writable, write_bytes
from .printing import escape_controls, note, standard_output
from .typed_files import load_pyarrow

# Stands for standard output.
STDOUT = Path("-")

# Largest number of rows of an Excel sheet, including the header.
MOST_SHEET_ROWS = 1_048_576

# Smallest and largest column width of a sheet, in characters.
NARROWEST, WIDEST = 10, 60

# Characters that a sheet cannot hold, and text that is exactly a number: no leading zeros, at most 15 digits.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
PLAIN_NUMBER = re.compile(r"-?(?=.{1,16}$)(0|[1-9]\d*)(\.\d+)?")

# Text that a spreadsheet reads as a number, such as -1,234.5 or -3 %.
NUMBER = re.compile(r"[-+]?[$€£¥]?[\d.,]+([eE][-+]?\d+)?\s?%?")

# Characters that start a formula after any blanks, also in the full-width forms of East Asian keyboards.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")

Write = Callable[[Any], None]
"""A function that writes the next rows, given as a data frame."""


def require_not_input(path: Path, data: Path | None) -> None:
    """Raise an error if the output file is the input table.

    Args:
        path: The file to write.
        data: The file of the table; None for standard input.
    """
    if data is not None and path.exists() and path.samefile(data):
        raise BayesNormError(f"--out: {path} is the input table. Choose another name.")


def require_free(path: Path, force: bool) -> None:
    """Raise an error, before any work, if a file cannot be written or exists already.

    Args:
        path: The file to write.
        force: Whether to overwrite it.
    """
    require_writable(path, "--out")
    if path.exists() and not force:
        raise BayesNormError(f"--out: {path} exists already. Use --force to overwrite it, or choose another name.")


def is_excel(out: Path) -> bool:
    """Return whether a file name is that of an Excel sheet."""
    return out.suffix.lower() == ".xlsx"


def is_parquet(out: Path) -> bool:
    """Return whether a file name is that of a Parquet file."""
    return out.suffix.lower() in (".parquet", ".pq")


@contextlib.contextmanager
def prediction_file(out: Path, *, spreadsheet_safe: bool) -> Iterator[Write]:
    """Yield a function that writes the next rows.

    Args:
        out: A CSV file, an .xlsx file, or - for standard output.
        spreadsheet_safe: Whether to mark CSV text that a spreadsheet would run as a formula; .xlsx does not need it.
    """
    if out == STDOUT:
        with standard_output() as stream:

            def write_text(lines: bytes) -> None:
                text = lines.decode()
                stream.write(escape_controls(text, keep="\t\n\r") if stream.isatty() else text)

            yield _csv_writer(write_text, spreadsheet_safe)
        return
    with naming(str(out)), replacing(out) as file:
        if is_excel(out):
            with _excel_writer(file, out) as write:
                yield write
        else:
            yield _csv_writer(file.write, spreadsheet_safe)


def load_openpyxl() -> Any:
    """Return the package openpyxl, or raise an error that says how to install it."""
    return load_package(
        "openpyxl", "--out: Excel files need openpyxl. Run: pip install openpyxl, or choose a name that ends in .csv."
    )


def write_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], out: Path) -> None:
    """Write column names and rows as CSV to a file and print its size, or write to standard output if `out` is "-"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if str(out) == "-":
        with standard_output() as stream:
            stream.write(text.getvalue())
        return
    write_bytes(out, text.getvalue().encode())
    note(f"Wrote {format_count(len(rows), 'row')} and {format_count(len(columns), 'column')} to {out}.")


def mark_formula(value: Any) -> Any:
    """Return text that a spreadsheet would run with an apostrophe before it, and any other value unchanged."""
    runs = isinstance(value, str) and (value.startswith(("\t", "\r", "\n")) or value.lstrip().startswith(FORMULA))
    return f"'{value}" if runs and not NUMBER.fullmatch(value) else value


def _csv_writer(write_lines: Callable[[bytes], object], spreadsheet_safe: bool) -> Write:
    """Return a function that writes the lines of the next rows, after the names of the columns."""
    is_first = True

    def write(frame: Any) -> None:
        nonlocal is_first
        header, lines = csv_text(frame, spreadsheet_safe)
        write_lines(header + lines if is_first else lines)
        is_first = False

    return write


def csv_text(frame: Any, spreadsheet_safe: bool) -> tuple[bytes, bytes]:
    """Return the line of CSV with the names of the columns, and the lines of the rows.

    Args:
        frame: The rows.
        spreadsheet_safe: Whether to mark text that a spreadsheet would run as a formula.
    """
    names, text = list(frame.columns), io.StringIO()
    columns = [_csv_cells(frame.iloc[:, place]) for place in range(len(names))]
    if spreadsheet_safe:
        names = [*map(mark_formula, names)]
        marked = [frame.iloc[:, place].dtype.kind not in "biuf" for place in range(len(names))]
        columns = [[*map(mark_formula, cells)] if mark else cells for cells, mark in zip(columns, marked, strict=True)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    end = text.tell()
    writer.writerows(zip(*columns, strict=True))
    lines = text.getvalue()
    return lines[:end].encode(), lines[end:].encode()


def _csv_cells(column: Any) -> list[Any]:
    """Return the cells of a column as CSV has them."""
    if column.dtype.kind == "f":
        return ["" if value != value else repr(value).removesuffix(".0") for value in column.tolist()]
    if column.dtype.kind in "biu":
        return list(column.tolist())
    missing = column.isna()
    return column.astype(object).mask(missing, "").tolist() if missing.any() else column.tolist()


def arrow_table(frame: Any) -> Any:
    """Return predictions as an Arrow table; columns of objects are text."""
    arrow = load_pyarrow()
    fields = {name: arrow.string() for name in frame.columns if frame[name].dtype == object}
    texts = {name: frame[name].map(str, na_action="ignore") for name in fields}
    table = arrow.Table.from_pandas(frame.assign(**texts), preserve_index=False).replace_schema_metadata()
    schema = arrow.schema([(field.name, fields.get(field.name, field.type)) for field in table.schema])
    return table.cast(schema)


def parquet_writer(file: IO[bytes], schema: Any) -> Any:
    """Return pyarrow's writer of a Parquet file."""
    return load_pyarrow().parquet.ParquetWriter(file, schema)


def _full_precision(value: float) -> str:
    """Write a number at full precision, and whole numbers without a decimal point."""
    return repr(float(value)).removesuffix(".0")


@contextlib.contextmanager
def _excel_writer(file: IO[bytes], out: Path) -> Iterator[Write]:
    """Yield a function that writes rows to the sheet of an Excel file; the header is bold and stays in view."""
    package = load_openpyxl()
    cells, styles, utils = (importlib.import_module(f"openpyxl.{name}") for name in ("cell", "styles", "utils"))
    book, content = package.Workbook(write_only=True), io.BytesIO()
    sheet = book.create_sheet("predictions")
    sheet.freeze_panes = "A2"
    formats: list[str] = []
    rows = 1

    def cell(value: Any, number_format: str) -> Any:
        sheet_cell = cells.WriteOnlyCell(sheet, value=None)
        if isinstance(value, float) and math.isinf(value):
            sheet_cell.value = _full_precision(value)  # as text, because a sheet has no infinity
        elif isinstance(value, str):
            number = PLAIN_NUMBER.fullmatch(value)
            sheet_cell.value = (
                float(value) if number and "." in value else int(value) if number else CONTROL.sub(" ", value)
            )
            if not number:
                sheet_cell.data_type = "s"  # text, so that Excel does not run it as a formula
        elif value == value and value is not None:
            sheet_cell.value = value.item() if hasattr(value, "item") else value
            if number_format and isinstance(sheet_cell.value, float):
                sheet_cell.number_format = number_format
        return sheet_cell

    def write(frame: Any) -> None:
        nonlocal rows
        if rows + len(frame) > MOST_SHEET_ROWS:
            raise BayesNormError(
                f"--out: {out} needs more than the {MOST_SHEET_ROWS:,} rows of an Excel sheet. Choose a name that ends "
                "in .csv."
            )
        if not formats:
            header = [cell(str(name), "") for name in frame]
            for place, (name, name_cell) in enumerate(zip(frame, header, strict=True), 1):
                name_cell.font = styles.Font(bold=True)
                longest = max(len(str(name)), *(len(str(value)) for value in frame[name].iloc[:50]), NARROWEST)
                sheet.column_dimensions[utils.get_column_letter(place)].width = min(longest + 2, WIDEST)
            sheet.append(header)
            formats.extend(_number_format(frame[name]) for name in frame)
        with naming(tempfile.gettempdir()):  # where openpyxl buffers rows
            for row in frame.astype(object).itertuples(index=False, name=None):
                sheet.append([cell(value, number_format) for value, number_format in zip(row, formats, strict=True)])
        rows += len(frame)

    try:
        yield write
        with naming(tempfile.gettempdir()):
            book.save(content)
    except BaseException:
        if formats:
            with contextlib.suppress(OSError):
                sheet.close()
        raise
    file.write(content.getbuffer())


@contextlib.contextmanager
def naming(file: str) -> Iterator[None]:
    """Name the file in errors that name none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or file
        raise


def _number_format(column: Any) -> str:
    """Return the number format of a column: thousands separators, and as many decimals as the values have."""
    if column.dtype.kind != "f":
        return ""
    decimals = max(
        (len(_full_precision(value).partition(".")[2]) for value in column if "e" not in _full_precision(value)),
        default=0,
    )
    return "#,##0" + ("." + "0" * decimals if decimals else "")
