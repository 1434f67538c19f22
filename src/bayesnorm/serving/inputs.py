"""Check the tensors of a request against the inputs of a model."""

from __future__ import annotations

import numpy as np

from ..errors import quoted
from .models import DATATYPES, Batch, Model, Tensor
from .refusals import Refusal


def require_rows(batch: Batch, most: int) -> int:
    """Return the number of rows, or raise a refusal unless all inputs have equally many, and not too many."""
    counts = {name: len(array) if array.ndim else 0 for name, array in batch.items()}
    rows = next(iter(counts.values()), 0)
    other = next((name for name, count in counts.items() if count != rows), None)
    if other is not None:
        raise Refusal(
            400, f"Input {quoted(other)} has {counts[other]} rows, but another has {rows}. Send equally many."
        )
    if rows == 0:
        raise Refusal(400, "The request has no rows. Send at least one.")
    if rows > most:
        raise Refusal(413, f"The request has {rows:,} rows, but at most {most:,} are accepted. Send several requests.")
    return rows


def model_batch(arrays: Batch, model: Model) -> dict[str, np.ndarray]:
    """Return the arrays of a request as the model's inputs, or raise a refusal that says what is wrong."""
    names = [tensor.name for tensor in model.inputs]
    unknown = next((name for name in arrays if name not in names), None)
    if unknown is not None:
        raise Refusal(
            400, f"There is no input {quoted(unknown)}. Leave it out. The inputs are {quoted(', '.join(names))}."
        )
    return {tensor.name: _checked(arrays, tensor, model.is_table) for tensor in model.inputs}


def _checked(arrays: Batch, tensor: Tensor, is_table: bool) -> np.ndarray:
    name = quoted(tensor.name)
    if tensor.name not in arrays:
        raise Refusal(400, f"Input {name} is missing. Send it, with datatype {tensor.datatype}.")
    array = arrays[tensor.name]
    if is_table and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape[1:] != tensor.shape or not array.ndim:
        expected = ", ".join(["rows", *map(str, tensor.shape)])
        raise Refusal(400, f"Input {name} has shape {quoted(list(array.shape))}. Its shape must be [{expected}].")
    if array.dtype == object and not is_table:
        raise Refusal(400, f"Input {name} is text. Send numbers, with datatype {tensor.datatype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int((~np.isfinite(array)).reshape(len(array), -1).any(1).argmax()) + 1
        advice = ' Send missing values as text: datatype BYTES and "".' if is_table else ""
        raise Refusal(400, f"Input {name} is NaN or infinite in row {row}. Send finite numbers.{advice}")
    if is_table:
        return array if tensor.datatype == "FP64" and array.dtype.kind in "fiu" else array.astype(object)
    with np.errstate(over="ignore"):
        array = array.astype(DATATYPES[tensor.datatype])
    if not np.isfinite(array).all():
        raise Refusal(400, f"Input {name} has a number that is too large for {tensor.datatype}. Send smaller numbers.")
    return array
