"""Write an estimator as one ONNX file, from the columns of a table to predictions, and compare both before writing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..errors import BayesNormError, load_package
from ..export import METADATA, ONNX_ADVICE, convert_to_onnx
from ..network import exported
from ..predictive import require_level
from ..words import DAY, ShortRepr
from ..writing import require_writable, write_bytes
from .encoded_columns import CategoricalColumn, DateColumn
from .preprocessing import TableColumn
from .table_module import ANOTHER, TableModule, category_numbers

# Numbers of rows for which a file is compared with its estimator.
BATCHES = (1, 2, 7, 33, 500)

# Largest difference: of numbers in standard deviations of the row, of probabilities, and of entropies.
TOLERANCE = 1e-4

# A category that no table has, for the comparison.
UNKNOWN = "\u2047 not a category \u2047"


@dataclass(frozen=True, eq=False, repr=False)
class ExportedTable(ShortRepr):
    """What was written.

    Args:
        path: The file.
        inputs: The names of the inputs, which are the columns.
        outputs: The names of the outputs.
        level: The probability of the intervals.
        largest_difference: The largest difference from the estimator, in standard deviations or as a probability.
        size: Bytes of the file.
    """

    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    level: float
    largest_difference: float
    size: int


def export_table(
    estimator: Any,
    path: str | os.PathLike[str],
    *,
    level: float = 0.9,
    description: Mapping[str, Any] | None = None,
) -> ExportedTable:
    """Write a fitted estimator as an ONNX file that predicts with uncertainty, without this package.

    Each column is an input of shape (rows,): numbers are doubles, NaN if missing; categories are strings, "" if
    missing; dates are doubles, seconds since 1970-01-01 in local time, NaN if missing. The outputs are doubles: mean,
    std, lower, upper, epistemic_std and aleatoric_std of each row, or probs (rows, classes), entropy and
    mutual_information. The interval is the calibrated one of `predict_interval`. All networks and samples are inside.

    The file is run on 1, 2, 7, 33 and 500 random rows before it is written. If a prediction differs from the
    estimator's by more than 1e-4 standard deviations of the row, nothing is written. Reasons for unusual rows, drift,
    conformal intervals and several targets cannot be exported.

    Args:
        estimator: A fitted estimator.
        path: The file, which ends with ".onnx".
        level: The probability of the intervals. [default: 0.9]
        description: Further JSON values for the metadata of the file.
    """
    target, level = Path(path), require_level(level)
    if target.suffix != ".onnx":
        raise BayesNormError(f'path: {target.name} must end with ".onnx".')
    require_writable(target)
    for package in ("onnx", "onnxscript", "onnxruntime"):
        load_package(package, ONNX_ADVICE)
    module = TableModule(estimator, level).eval()
    columns = estimator.preprocessing_.columns
    names = [column.name for column in columns]
    if set(names) & set(module.names):
        both = min(set(names) & set(module.names))
        raise BayesNormError(
            f"The table has a column called {both}, which is the name of an output. Rename the column."
        )
    example = tuple(map(torch.tensor, _as_numbers(columns, _random_rows(estimator, 3, 0))))
    program = exported(module, example, type(estimator))
    model = convert_to_onnx(program, names, module.names)
    _take_strings(model, columns)
    metadata = {
        "kind": "table",
        "version": 1,
        "columns": [{"name": column.name, "kind": _kind(column)} for column in columns],
        "level": level,
        "outputs": list(module.names),
        "classes": [str(label) for label in getattr(estimator, "classes_", ())],
        **(description or {}),
    }
    session = _session(_content(model, metadata))
    difference = max(_difference(estimator, session, columns, rows, level) for rows in BATCHES)
    if not difference <= TOLERANCE:
        raise BayesNormError(
            f"The exported file gives other predictions than the estimator: the largest difference is {difference:.1e} "
            f"standard deviations, and at most {TOLERANCE:g} is allowed. Nothing was written."
        )
    content = _content(model, {**metadata, "largest_difference": difference, "compared_rows": list(BATCHES)})
    write_bytes(target, content)
    return ExportedTable(str(target), tuple(names), module.names, level, difference, len(content))


def _kind(column: TableColumn) -> str:
    if isinstance(column, DateColumn):
        return "date"
    return "category" if isinstance(column, CategoricalColumn) else "number"


def _take_strings(model: Any, columns: Sequence[TableColumn]) -> None:
    """Let the inputs of categories be strings, from which a look-up gives their numbers."""
    import onnx

    graph = model.graph
    for number, column in enumerate(columns):
        if not isinstance(column, CategoricalColumn):
            continue
        inner, numbers = f"category_{number}", category_numbers(column)
        for node in graph.node:
            node.input[:] = [inner if name == column.name else name for name in node.input]
        value = next(value for value in graph.input if value.name == column.name)
        value.type.tensor_type.elem_type = onnx.TensorProto.STRING
        look_up = onnx.helper.make_node(
            "LabelEncoder",
            [column.name],
            [inner],
            domain="ai.onnx.ml",
            keys_strings=list(numbers),
            values_int64s=list(numbers.values()),
            default_int64=ANOTHER,
        )
        graph.node.insert(0, look_up)
    if not any(entry.domain == "ai.onnx.ml" for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))


def _content(model: Any, metadata: Mapping[str, Any]) -> bytes:
    """Return the bytes of a model with metadata, without lines of code and paths of this machine."""
    import onnx

    del model.metadata_props[:]
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    onnx.helper.set_model_props(model, {METADATA: json.dumps(metadata)})
    return bytes(model.SerializeToString())


def _session(content: bytes) -> Any:
    """Return a session of the runtime, with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _difference(estimator: Any, session: Any, columns: Sequence[TableColumn], rows: int, level: float) -> float:
    """Return the largest difference of a file's predictions from the estimator's for random rows."""
    frame = _random_rows(estimator, rows, rows)
    inputs = {
        column.name: frame[column.name].fillna("").to_numpy(object) if values.dtype.kind == "i" else values
        for column, values in zip(columns, _as_numbers(columns, frame), strict=True)
    }
    names = [output.name for output in session.get_outputs()]
    values = dict(zip(names, session.run(names, inputs), strict=True))
    # An estimator that was fitted to an array knows no names.
    table = frame if hasattr(estimator, "feature_names_in_") else frame.to_numpy()
    predictive, uncertainty = estimator.predict_with_uncertainty(table)
    expected = {name: uncertainty[name].to_numpy() for name in names if name in uncertainty}
    scale: Any = 1.0
    if "probs" in names:
        expected["probs"] = estimator.proba_of(predictive)
    else:
        lower, upper = (end[:, 0].numpy() for end in estimator.interval_of(predictive, level))
        scale = predictive.std[:, 0].numpy()
        expected |= {"mean": predictive.mean[:, 0].numpy(), "std": scale, "lower": lower, "upper": upper}
    differences = [np.abs(values[name] - expected[name]) / scale for name in names]
    return float(max(np.nan_to_num(part, nan=np.inf).max() for part in differences))


def _random_rows(estimator: Any, rows: int, seed: int) -> pd.DataFrame:
    """Return rows like those of training, and some with values that do not occur there."""
    generator = np.random.default_rng(seed)
    parts = {}
    for column in estimator.preprocessing_.columns:
        missing = generator.random(rows) < 0.1
        if isinstance(column, CategoricalColumn):
            choices = [*column.categories, *column.rare, UNKNOWN]
            cells = generator.choice(np.array(choices, dtype=object), rows)
            cells[missing] = None
            parts[column.name] = pd.Series(cells, dtype=object)
            continue
        trend = column.trend if isinstance(column, DateColumn) else column
        numbers = (trend.centre or 0.0) + (trend.scale or 1.0) * generator.normal(size=rows) * generator.choice(
            [1, 5], rows
        )
        if isinstance(column, DateColumn):
            dates = (np.clip(numbers, -1e5, 1e5) * DAY).astype(np.int64).astype("datetime64[s]")
            dates[missing] = np.datetime64("NaT")
            parts[column.name] = pd.Series(dates)
        else:
            parts[column.name] = pd.Series(np.where(missing, np.nan, numbers))
    return pd.DataFrame(parts)


def _as_numbers(columns: Sequence[TableColumn], frame: pd.DataFrame) -> list[NDArray[Any]]:
    """Return the inputs of `TableModule` for rows."""
    inputs: list[NDArray[Any]] = []
    for column in columns:
        cells = frame[column.name]
        if isinstance(column, CategoricalColumn):
            numbers = category_numbers(column)
            inputs.append(np.array([numbers.get(cell, ANOTHER) for cell in cells.fillna("")], dtype=np.int64))
        elif isinstance(column, DateColumn):
            seconds = cells.to_numpy("datetime64[s]").astype(np.int64).astype(np.float64)
            inputs.append(np.where(cells.isna(), np.nan, seconds))
        else:
            inputs.append(cells.to_numpy(np.float64))
    return inputs
