"""A file of ONNX as a served model: a network, or a table with its columns as inputs."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import BayesNormError, InputError, quoted
from ..export import OnnxFile, OnnxTensor, open_onnx
from .models import DATATYPES, Batch, Tensor

# A date, maybe with a time, whose time zone is left out as in training.
DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?(?(2)\s*(?:[zZ]|[+-]\d\d:?\d\d)?)", re.ASCII
)


class OnnxModel:
    """An ONNX file as the server needs it.

    An exported table is served as a table, and so is any file whose inputs have one number or text per row, if it has
    several inputs or text: rows as JSON and CSV are accepted. Missing numbers are NaN in the graph, and missing text is
    "". Of an exported table, dates are text such as 2024-01-31, and each class has a column of probabilities.

    Args:
        path: The file.
        name: The name in addresses; None for that of the file.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        # A core is left for HTTP. OMP_NUM_THREADS limits the threads, as for networks.
        threads = max(1, torch.get_num_threads() - 1)
        self.name, self._file = name or Path(path).stem, open_onnx(path, threads)
        for tensor in (*self._file.inputs, *self._file.outputs):
            if tensor.datatype not in DATATYPES:
                raise BayesNormError(f"{path}: {quoted(tensor.name)} has the datatype {tensor.datatype}. Use FP32.")
        self.is_table = _is_table(self._file)
        self._dates, self._classes = _dates_and_classes(self._file.metadata)
        self.inputs = tuple(map(self._input, self._file.inputs))
        self.outputs = tuple(part for tensor in self._file.outputs for part in self._output(tensor))

    def _input(self, tensor: OnnxTensor) -> Tensor:
        datatype = "BYTES" if tensor.name in self._dates else tensor.datatype
        return Tensor(tensor.name, datatype, () if self.is_table else _fixed(tensor))

    def _output(self, tensor: OnnxTensor) -> list[Tensor]:
        if tensor.name == "probs" and tensor.shape == (len(self._classes),):
            columns = [Tensor(f"p({label})", tensor.datatype) for label in self._classes]
            return [Tensor("predicted", "BYTES"), *columns]
        return [Tensor(tensor.name, tensor.datatype, () if self.is_table and tensor.shape == (1,) else tensor.shape)]

    def predict(self, batch: Batch) -> Batch:
        """Return the outputs of rows."""
        feed = {
            tensor.name: self._column(tensor, batch[tensor.name]) if self.is_table else batch[tensor.name]
            for tensor in self._file.inputs
        }
        names = [tensor.name for tensor in self._file.outputs]
        arrays = dict(zip(names, self._file.session.run(names, feed), strict=True))
        if any(tensor.name == "predicted" for tensor in self.outputs):
            probs = arrays.pop("probs")
            arrays["predicted"] = np.array(self._classes, dtype=object)[probs.argmax(1)]
            arrays |= {f"p({label})": column for label, column in zip(self._classes, probs.T, strict=True)}
        return {tensor.name: arrays[tensor.name].reshape(-1, *tensor.shape) for tensor in self.outputs}

    def watch(self, batch: Batch) -> dict[str, float]:
        """Return nothing: the file does not store the statistics of training."""
        return {}

    def _column(self, tensor: OnnxTensor, cells: NDArray[Any]) -> NDArray[Any]:
        """Return the cells of a column as the graph needs them; rows are numbered from 1 in errors."""
        if tensor.datatype == "BYTES":
            column = np.array(["" if cell is None else str(cell) for cell in cells], dtype=object)
        else:
            column = np.empty(len(cells), DATATYPES[tensor.datatype])
            for row, cell in enumerate(cells.tolist()):
                try:
                    column[row] = _seconds(cell) if tensor.name in self._dates else _number(cell, column.dtype)
                except (TypeError, ValueError, OverflowError):
                    kind = "a date such as 2024-01-31" if tensor.name in self._dates else "a number"
                    raise InputError(
                        f"Column {quoted(tensor.name)} contains {quoted(cell)} in row {row + 1}. Send {kind}, which "
                        f"must fit {tensor.datatype}."
                    ) from None
        return column.reshape(-1, *tensor.shape)


def _is_table(file: OnnxFile) -> bool:
    """Return whether the inputs of a file are columns of a table."""
    columns = all(tensor.shape in ((), (1,)) for tensor in file.inputs)
    several = len(file.inputs) > 1 or file.inputs[0].datatype == "BYTES"
    return columns and (several or file.metadata.get("kind") == "table")


def _dates_and_classes(metadata: dict[str, Any]) -> tuple[set[str], list[str]]:
    """Return the columns of dates and the labels of the classes of an exported table."""
    if metadata.get("kind") != "table":
        return set(), []
    try:
        dates = {str(column["name"]) for column in metadata["columns"] if column["kind"] == "date"}
        classes = [str(label) for label in metadata["classes"]]
        if len(set(classes)) < len(classes):
            raise ValueError
        return dates, classes
    except (KeyError, TypeError, ValueError):
        raise BayesNormError("The description of the table in the ONNX file is damaged. Export it again.") from None


def _fixed(tensor: OnnxTensor) -> tuple[int, ...]:
    """Return the shape of an example, or raise an error if one of its sizes is free."""
    if -1 in tensor.shape:
        raise BayesNormError(
            f"Input {quoted(tensor.name)} has sizes that are free: {list(tensor.shape)}. Requests of different sizes "
            "cannot be predicted together. Export the file for one size."
        )
    return tensor.shape


def _number(cell: Any, dtype: np.dtype[Any]) -> float | int:
    """Return a cell as a number of a type, or raise an error; a missing one is NaN."""
    if dtype.kind != "f":
        if isinstance(cell, float) and not cell.is_integer():
            raise ValueError
        return int(cell)
    number = math.nan if cell is None or cell == "" else float(cell)
    if abs(number) > float(np.finfo(dtype).max):
        raise OverflowError
    return number


def _seconds(cell: Any) -> float:
    """Return a date as seconds since 1970 in local time, or raise an error; a missing one is NaN."""
    if cell is None or cell == "":
        return math.nan
    match = DATE.fullmatch(cell) if isinstance(cell, str) else None
    if match is None:
        raise ValueError
    return float((np.datetime64(match[1] + (match[2] or ""), "us") - np.datetime64(0, "us")) / np.timedelta64(1, "s"))
