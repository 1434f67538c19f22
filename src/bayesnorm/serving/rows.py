"""Rows of a table as plain JSON or CSV: the requests and replies of `/predict`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import quoted
from .models import Batch, Tensor
from .refusals import Refusal
from .tensors import decode_json

Cell = None | bool | int | float | str


class Rows(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a request: one object for each row, with null for missing values."""

    rows: list[dict[str, Cell]]


_rows = msgspec.json.Decoder(Rows)


def decode_rows(body: bytes, inputs: Sequence[Tensor]) -> dict[str, NDArray[Any]]:
    """Return the columns of rows in JSON."""
    rows = decode_json(_rows, body).rows
    names = [tensor.name for tensor in inputs]
    expected = set(names)
    for number, row in enumerate(rows, 1):
        if row.keys() != expected:
            _require_names(row, names, f"Row {number}")
    return {name: _column([row[name] for row in rows]) for name in names}


def decode_csv(body: bytes, inputs: Sequence[Tensor]) -> dict[str, NDArray[Any]]:
    """Return the columns of a CSV text: UTF-8, commas, decimal points, and names in the first line."""
    try:
        lines = [line for line in csv.reader(io.StringIO(str(body, "utf-8-sig"), newline=""), strict=True) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refusal(400, f"The body is not CSV in UTF-8 with commas: {error}.") from None
    header = [name.strip() for name in lines[0]] if lines else []
    names = [tensor.name for tensor in inputs]
    if len(set(header)) < len(header):
        raise Refusal(400, "The first line has a name twice. Name every column once.")
    _require_names(header, names, "The first line")
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(header):
            raise Refusal(
                400, f"Row {number} has {len(line)} cells, but the first line has {len(header)} names. Correct it."
            )
    columns = dict(zip(header, zip(*lines[1:], strict=True), strict=False))
    return {name: _column(columns.get(name, ())) for name in names}


def encode_rows(tensors: Sequence[Tensor], outputs: Batch) -> bytes:
    """Return predictions as JSON, one object for each row; infinite numbers are null."""
    names = [tensor.name for tensor in tensors]
    rows = zip(*(outputs[name].tolist() for name in names), strict=True)
    return msgspec.json.encode({"predictions": [dict(zip(names, row, strict=True)) for row in rows]})


def encode_csv(tensors: Sequence[Tensor], outputs: Batch) -> bytes:
    """Return predictions as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([tensor.name for tensor in tensors])
    writer.writerows(zip(*(outputs[tensor.name].tolist() for tensor in tensors), strict=True))
    return text.getvalue().encode()


def _column(cells: Sequence[Any]) -> NDArray[Any]:
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def _require_names(row: Any, names: Sequence[str], where: str) -> None:
    """Raise a refusal unless a row has exactly the columns of the model."""
    unknown = [name for name in row if name not in set(names)]
    if unknown:
        raise Refusal(
            400,
            f"{where} has an unknown column {quoted(unknown[0])}. Leave it out. The columns are "
            f"{quoted(', '.join(names))}.",
        )
    missing = [name for name in names if name not in row]
    if missing:
        raise Refusal(400, f'{where} lacks column {quoted(missing[0])}. Add it; a missing value is null, or "" in CSV.')
