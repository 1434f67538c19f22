"""Predict the rows of CSV and Parquet files with an exported table model, without torch and pandas."""

from __future__ import annotations

import csv
import datetime
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .batch_reference import Array
from .category_text import cell_label
from .date_text import WAYS, YEAR_FIRST, read_date
from .errors import InputError, quoted
from .model_file import ModelFile
from .number_text import DECIMALS, PERCENT, read_number

# Words in a cell that mean a missing value.
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None"}
    | {"1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
)

# Rows that are predicted together.
ROWS = 50_000

_EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Column:
    """How a column of text becomes an input of the graph.

    Args:
        name: Its name.
        kind: "number", "category" or "date".
        mark: The currency or percent sign of its numbers.
        point: The decimal point, if it differs from that of the file; else None.
        dates: The format of its dates.
        forgiving: Whether unreadable cells count as empty.
    """

    name: str
    kind: str
    mark: str = ""
    point: str | None = None
    dates: str = YEAR_FIRST
    forgiving: bool = False


class Table:
    """An exported table model, which predicts rows of files or columns.

        table = Table("model.onnx")
        predictions = table.predict_file("new.csv")
        predictions["mean"], predictions["lower"], predictions["upper"]

    Args:
        file: The path of a file that `bayesnorm export` or `export_table` wrote, or its bytes.
        threads: Number of threads. Default: None, chosen by ONNX Runtime.
        providers: Execution providers of ONNX Runtime, in order of preference.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | bytes,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        self._file = ModelFile(file, threads, providers)
        self._file.require("columns", "bayesnorm_runtime.Network for networks")
        self.metadata: Mapping[str, Any] = self._file.metadata
        self.outputs = self._file.names("outputs")
        try:
            self.columns = _columns(self.metadata)
            self.classes = tuple(str(label) for label in self.metadata["classes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._file.refusal("the description of the columns cannot be used") from error
        types = {"category": "tensor(string)"}
        if any(self._file.type_of(column.name) != types.get(column.kind, "tensor(double)") for column in self.columns):
            raise self._file.refusal("the columns have other types in the graph than in the metadata")

    def __repr__(self) -> str:
        return f"Table(columns={[column.name for column in self.columns]}, outputs={list(self.outputs)})"

    def predict_file(
        self, path: str | os.PathLike[str], *, delimiter: str = ",", decimal: str = "."
    ) -> dict[str, Array]:
        """Return predictions for the rows of a CSV or Parquet file, by name.

        The file needs a column for every input of the model; others are ignored. Numbers, categories and dates are read
        as in training: $1,200 and 12 % if the columns were written like that, and dates in the format of training.

        Args:
            path: The file; Parquet (.parquet) needs pyarrow.
            delimiter: The separator of cells in a CSV file.
            decimal: The decimal point of the file, "." or ",".
        """
        if decimal not in DECIMALS:
            raise InputError(f'decimal must be "." or ",", got {decimal!r}.')
        file = Path(path)
        if not file.is_file():
            raise InputError(f"{path} does not exist.")
        names = [column.name for column in self.columns]
        if file.suffix.lower() in (".parquet", ".pq"):
            columns = _parquet_columns(file, names)
        else:
            columns = _csv_columns(file, names, delimiter)
        return self.predict(columns, decimal=decimal, where=f"{path}: ")

    def predict(self, columns: Mapping[str, Any], *, decimal: str = ".", where: str = "") -> dict[str, Array]:
        """Return predictions by name: numbers of each row, or `probs` (rows, classes) and the `predicted` classes.

        Args:
            columns: The cells of every column by name: text, numbers, dates, or None where they are missing.
            decimal: The decimal point of text.
            where: The beginning of messages.
        """
        missing = [column.name for column in self.columns if column.name not in columns]
        if missing:
            raise InputError(
                f"{where}the column {quoted(missing[0])} is missing. The model needs the columns "
                f"{quoted(', '.join(column.name for column in self.columns))}."
            )
        cells = {column.name: _as_objects(columns[column.name]) for column in self.columns}
        rows = {len(part) for part in cells.values()}
        if len(rows) > 1:
            raise InputError(f"{where}the columns have different numbers of rows: {sorted(rows)}.")
        feeds = {column.name: _input(column, cells[column.name], decimal, where) for column in self.columns}
        count = rows.pop() if rows else 0
        starts = range(0, count, ROWS) or range(1)
        parts = [
            self._file.run(self.outputs, {name: part[start : start + ROWS] for name, part in feeds.items()})
            for start in starts
        ]
        values = {name: np.concatenate(part) for name, *part in zip(self.outputs, *parts, strict=True)}
        if "probs" in values and values["probs"].shape[1:] == (len(self.classes),):
            values["predicted"] = np.array(self.classes, dtype=object)[values["probs"].argmax(1)]
        return values


def date_in_seconds(date: datetime.datetime) -> float:
    """Return a date without a time zone as seconds since 1970."""
    return (date - _EPOCH).total_seconds()


def _columns(metadata: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a file; how their text was written is in files that the command exports."""
    formats = {entry["name"]: entry for entry in metadata.get("formats", ())}
    columns = []
    for entry in metadata["columns"]:
        written = formats.get(entry["name"], {})
        column = Column(
            str(entry["name"]),
            str(entry["kind"]),
            str(written.get("mark", "")),
            written.get("decimal"),
            str(written.get("dates") or YEAR_FIRST),
            bool(written.get("forgiving")),
        )
        if column.kind not in ("number", "category", "date") or column.dates not in WAYS:
            raise ValueError(column.kind)
        if column.point not in (None, *DECIMALS):
            raise ValueError(column.point)
        columns.append(column)
    return tuple(columns)


def _csv_columns(path: Path, names: Sequence[str], delimiter: str) -> dict[str, list[str]]:
    """Return the cells of some columns of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(lines, [])]
            if len(set(header)) < len(header):
                raise InputError(f"{path}: the first line has a name twice. Name every column once.")
            places = {name: header.index(name) for name in names if name in header}
            columns: dict[str, list[str]] = {name: [] for name in places}
            for cells in lines:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise InputError(
                        f"{path}: line {lines.line_num} has {len(cells)} cells, but the first line has {len(header)} "
                        "names. Correct it, or pass another delimiter=."
                    )
                for name, place in places.items():
                    columns[name].append(cells[place])
    except (UnicodeDecodeError, csv.Error, TypeError) as error:
        raise InputError(f"{path} is not CSV in UTF-8: {error}.") from error
    return columns


def _parquet_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the cells of some columns of a Parquet file."""
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError("Reading Parquet needs pyarrow: pip install pyarrow.") from error
    try:
        present = parquet.read_schema(path).names
        table = parquet.read_table(path, columns=[name for name in names if name in present])
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a Parquet file that can be read: {str(error).splitlines()[0]}") from error
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _as_objects(cells: Any) -> list[Any]:
    """Return cells as a list; a missing number is None."""
    values = cells.tolist() if isinstance(cells, np.ndarray) and cells.dtype.kind != "M" else list(cells)
    return [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in values]


def _input(column: Column, cells: Sequence[Any], decimal: str, where: str) -> Array:
    """Return the cells of a column as the graph needs them."""
    if column.kind == "category":
        return np.array(["" if _is_missing(cell) else cell_label(cell) for cell in cells], dtype=object)
    read: Callable[[Any], float | None]
    if column.kind == "date":
        read, kind = (lambda cell: _seconds(cell, column.dates)), f"dates ({column.dates})"
    else:
        point = "," if decimal == "," else column.point or decimal
        with_mark = f" with {column.mark}" if column.mark else ""
        read, kind = (lambda cell: _number(cell, point, column.mark)), f"numbers{with_mark}"
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if _is_missing(cell):
            continue
        value = read(cell)
        if value is not None and math.isfinite(value):
            values[row] = value
        elif not column.forgiving:
            raise InputError(
                f"{where}column {quoted(column.name)} contains {kind} in training, but row {row + 1} contains "
                f"{quoted(cell)}. Correct it, or leave the cell empty."
            )
    return values


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip() in MISSING)


def _number(cell: Any, point: str, mark: str) -> float | None:
    """Return a cell as a number, or None; a column with percent signs needs them in every cell."""
    if isinstance(cell, str):
        number = _read_number(cell, point)
        marks = {mark} if mark == PERCENT else {mark, ""}
        return None if number is None or number[1] not in marks else number[0]
    try:
        return None if mark == PERCENT else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


_read_number = lru_cache(maxsize=2**16)(read_number)


def _seconds(cell: Any, way: str) -> float | None:
    """Return a cell as seconds since 1970, or None."""
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if isinstance(cell, datetime.datetime):
        return date_in_seconds(cell.replace(tzinfo=None))
    if isinstance(cell, datetime.date):
        return date_in_seconds(datetime.datetime(cell.year, cell.month, cell.day))
    date = read_date(str(cell), way)
    return None if date is None else date_in_seconds(date)
