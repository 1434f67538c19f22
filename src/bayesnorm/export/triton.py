"""Read what an ONNX file takes and gives, and write it as a model repository for Triton."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BayesNormError, load_package, quoted
from ..files import parse_json, read_at_most
from ..writing import write_bytes
from .exporting import METADATA

ADVICE = "Reading ONNX files needs onnxruntime. Run: pip install onnxruntime"

# Bytes of the largest ONNX file, which its format limits.
LARGEST_ONNX = 2**31

DATATYPES = {
    "tensor(bool)": "BOOL",
    **{f"tensor({sign}int{bits})": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
"""The types of ONNX as datatypes of the Open Inference Protocol."""


@dataclass(frozen=True)
class OnnxTensor:
    """An input or output of an ONNX file.

    Args:
        name: Its name.
        datatype: Its datatype in the Open Inference Protocol.
        shape: Its sizes for one row or example, without the first axis; -1 where a size is free.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file that is ready to run.

    Args:
        session: The session of onnxruntime.
        inputs, outputs: What it takes and gives.
        metadata: What `export` wrote into it; empty for files of other programs.
    """

    session: Any
    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]
    metadata: dict[str, Any]


def open_onnx(path: str | os.PathLike[str], threads: int = 0) -> OnnxFile:
    """Return an ONNX file, loaded in onnxruntime.

    Args:
        path: The file. Its inputs and outputs must have a free number of rows as their first axis.
        threads: Threads of one prediction; 0 for one per core.
    """
    onnxruntime = load_package("onnxruntime", ADVICE)
    try:
        content = read_at_most(Path(path), LARGEST_ONNX)
    except (OSError, ValueError) as error:
        raise BayesNormError(f"{path} cannot be read ({error}). Pass an ONNX file.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    # Threads that wait for work would otherwise take the processor from the rest of the program.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a class of its own for every kind of damage
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BayesNormError(
            f"{path} is not an ONNX file that onnxruntime can run ({words}). Export it again."
        ) from None
    try:
        metadata = parse_json(session.get_modelmeta().custom_metadata_map.get(METADATA, "{}"))
        if not isinstance(metadata, dict):
            raise ValueError("it is not an object")
    except ValueError as error:
        raise BayesNormError(f"{path}: its description is damaged ({error}). Export it again.") from None
    # Statistics of layers, which files that watch their inputs return as well, have no axis of examples.
    names = metadata.get("outputs") if "watch" in metadata else None
    shown = [node for node in session.get_outputs() if not isinstance(names, list) or node.name in names]
    inputs, outputs = (tuple(_tensor(node, path) for node in nodes) for nodes in (session.get_inputs(), shown))
    return OnnxFile(session, inputs, outputs, metadata)


def _tensor(node: Any, path: str | os.PathLike[str]) -> OnnxTensor:
    if node.type not in DATATYPES:
        raise BayesNormError(
            f"{path}: {quoted(node.name)} has the type {node.type}. Export tensors of numbers or text."
        )
    if not node.shape or isinstance(node.shape[0], int):
        raise BayesNormError(
            f"{path}: {quoted(node.name)} has the shape {node.shape}. Its first axis must be the number of rows, which "
            "is free. Export the file with a dynamic batch size, as bayesnorm.export does."
        )
    shape = tuple(size if isinstance(size, int) else -1 for size in node.shape[1:])
    return OnnxTensor(node.name, DATATYPES[node.type], shape)


def write_triton_repository(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], name: str | None = None, most_rows: int = 64
) -> Path:
    """Write an ONNX file as a model repository for Triton or KServe, and return the model's folder.

    The repository has `NAME/config.pbtxt` and `NAME/1/model.onnx`. Triton then predicts waiting requests together.

    Args:
        path: The ONNX file.
        folder: The folder of the repository. Other models in it stay.
        name: The name of the model. [default: None, the name of the file]
        most_rows: Largest number of rows that are predicted together.
    """
    name = name or Path(path).stem
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise BayesNormError(f"The model cannot be called {quoted(name)}. Use letters, digits, '_', '-' and '.'.")
    file = open_onnx(path)
    model = Path(folder) / name
    (model / "1").mkdir(parents=True, exist_ok=True)
    write_bytes(model / "1" / "model.onnx", Path(path).read_bytes())
    write_bytes(model / "config.pbtxt", triton_config(name, file.inputs, file.outputs, most_rows).encode())
    return model


def triton_config(name: str, inputs: Sequence[OnnxTensor], outputs: Sequence[OnnxTensor], most_rows: int) -> str:
    """Return the configuration of a model for Triton, in the text format of protobuf."""
    lines = [f"name: {json.dumps(name)}", 'backend: "onnxruntime"', f"max_batch_size: {most_rows}"]
    for side, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            kind = f"TYPE_{'STRING' if tensor.datatype == 'BYTES' else tensor.datatype}"
            # Triton has no empty shapes, so one number per row is a shape of 1 outside of the model.
            shape = f"dims: {list(tensor.shape)}" if tensor.shape else "dims: [1] reshape { shape: [] }"
            lines.append(f"{side} {{ name: {_text(tensor.name)} data_type: {kind} {shape} }}")
    return "\n".join([*lines, "dynamic_batching { }"]) + "\n"


def _text(name: str) -> str:
    """Return a string of the text format of protobuf: bytes that are no plain ASCII in octal."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '\\"' else f"\\{byte:03o}" for byte in name.encode())
    return f'"{"".join(plain)}"'
