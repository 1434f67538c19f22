"""A file of ONNX as a served model: a network, or a table with its columns as inputs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BayesNormError, InputError, quoted
from ..export import OnnxTensor, open_onnx
from .models import DATATYPES, Batch, Tensor


class OnnxModel:
    """An ONNX file as the server needs it.

    A file whose inputs all have one number or text per row, and which has several inputs or text, is a table: rows as
    JSON and CSV are accepted, and missing numbers are NaN in the graph, missing text is "".

    Args:
        path: The file.
        name: The name in addresses; None for that of the file.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.name = name or Path(path).stem
        self._session, inputs, outputs = open_onnx(path)
        scalar = all(tensor.shape in ((), (1,)) for tensor in inputs)
        self.is_table = scalar and (len(inputs) > 1 or inputs[0].datatype == "BYTES")
        self._shapes = {tensor.name: tensor.shape for tensor in inputs}
        self.inputs = tuple(
            Tensor(tensor.name, tensor.datatype, () if self.is_table else _fixed(tensor)) for tensor in inputs
        )
        self.outputs = tuple(Tensor(tensor.name, tensor.datatype, tensor.shape) for tensor in outputs)
        for tensor in (*inputs, *outputs):
            if tensor.datatype not in DATATYPES:
                raise BayesNormError(f"{path}: {quoted(tensor.name)} has the datatype {tensor.datatype}. Use FP32.")

    def predict(self, batch: Batch) -> Batch:
        """Return the outputs of rows."""
        feed = {}
        for tensor in self.inputs:
            array = batch[tensor.name]
            if self.is_table:
                column = _text(array) if tensor.datatype == "BYTES" else _numbers(tensor, array)
                array = column.reshape(-1, *self._shapes[tensor.name])
            feed[tensor.name] = array
        names = [tensor.name for tensor in self.outputs]
        arrays = dict(zip(names, self._session.run(names, feed), strict=True))
        if not self.is_table:
            return arrays
        return {name: array[:, 0] if array.shape[1:] == (1,) else array for name, array in arrays.items()}

    def watch(self, batch: Batch) -> dict[str, float]:
        """Return nothing: the file does not store the statistics of training."""
        return {}


def _fixed(tensor: OnnxTensor) -> tuple[int, ...]:
    """Return the shape of an example, or raise an error if one of its sizes is free."""
    if -1 in tensor.shape:
        raise BayesNormError(
            f"Input {quoted(tensor.name)} has sizes that are free: {list(tensor.shape)}. Requests of different sizes "
            "cannot be predicted together. Export the file for one size."
        )
    return tensor.shape


def _text(column: NDArray[Any]) -> NDArray[Any]:
    return np.array(["" if cell is None else str(cell) for cell in column], dtype=object)


def _numbers(tensor: Tensor, column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as numbers of the datatype of the input; missing values are NaN."""
    numbers = np.empty(len(column), DATATYPES[tensor.datatype])
    for row, cell in enumerate(column.tolist()):
        try:
            with np.errstate(over="raise"):
                numbers[row] = _number(cell, numbers.dtype.kind)
            if np.isinf(numbers[row]):
                raise ValueError
        except (TypeError, ValueError, OverflowError, FloatingPointError):
            kind = "a number" if numbers.dtype.kind == "f" else "a whole number"
            raise InputError(
                f"Column {quoted(tensor.name)} contains {quoted(cell)} in row {row + 1}. Send {kind} that fits "
                f"{tensor.datatype}."
            ) from None
    return numbers


def _number(cell: Any, kind: str) -> float | int:
    """Return a cell as a number of a kind of dtype, or raise an error."""
    if kind == "f":
        return math.nan if cell is None or cell == "" else float(cell)
    if isinstance(cell, float) and not cell.is_integer():
        raise ValueError
    return int(cell)
