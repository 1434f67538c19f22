"""Requests and replies of the Open Inference Protocol V2, as JSON and with its binary tensor extension.

A binary tensor stands after the JSON, and the header `Inference-Header-Content-Length` says where. Numbers are
little-endian. A text has its length in bytes, four bytes, before it.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import quoted
from .models import DATATYPES, Batch, Tensor, datatype_of
from .refusals import Refusal

HEADER_LENGTH = "Inference-Header-Content-Length"
_SIZE = "binary_data_size"
# Largest number of axes of an input.
_MOST_AXES = 8

# Extensions of the protocol that this server does not have, by the parameters that ask for them.
_MISSING = {"shared_memory_region": "shared memory", "classification": "classification"}


class InputTensor(msgspec.Struct):
    """A tensor of a request; its data is JSON, or follows the JSON as bytes."""

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = msgspec.Raw(b"")
    parameters: dict[str, Any] = {}


class RequestedOutput(msgspec.Struct):
    """An output that the client wants."""

    name: str
    parameters: dict[str, Any] = {}


class InferRequest(msgspec.Struct):
    """The JSON of a request."""

    inputs: list[InputTensor]
    id: str = ""
    outputs: list[RequestedOutput] | None = None
    parameters: dict[str, Any] = {}


_requests = msgspec.json.Decoder(InferRequest)


def decode_json(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Return the content of a JSON text, or raise a refusal that says where it is wrong."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"The body is not the expected JSON: {error}. See /docs for an example.") from None


def decode_request(body: bytes, header_length: str | None) -> tuple[InferRequest, dict[str, NDArray[Any]]]:
    """Return the JSON of a request, and its tensors by name.

    Args:
        body: The body of the request.
        header_length: The header that says how many bytes the JSON has; None if it is the whole body.
    """
    length = len(body)
    if header_length is not None:
        length = int(header_length) if re.fullmatch("[0-9]{1,12}", header_length) else len(body) + 1
        if length > len(body):
            raise Refusal(
                400,
                f"{HEADER_LENGTH} must be a number of bytes up to the {len(body):,} of the body, got "
                f"{quoted(header_length)}.",
            )
    request: InferRequest = decode_json(_requests, body[:length])
    arrays: dict[str, NDArray[Any]] = {}
    binary = memoryview(body)[length:]
    for tensor in request.inputs:
        name = quoted(tensor.name)
        if tensor.name in arrays:
            raise Refusal(400, f"Input {name} is there twice. Send it once.")
        _require_extensions(tensor.parameters)
        if tensor.datatype not in DATATYPES:
            raise Refusal(
                400, f"Input {name} has datatype {quoted(tensor.datatype)}. Use one of {', '.join(DATATYPES)}."
            )
        if len(tensor.shape) > _MOST_AXES or not all(0 < size < 2**31 for size in tensor.shape):
            raise Refusal(
                400, f"Input {name} has shape {quoted(tensor.shape)}. Send up to {_MOST_AXES} sizes, each at least 1."
            )
        count = math.prod(tensor.shape)
        if _SIZE not in tensor.parameters:
            values = _from_json(tensor, count)
        else:
            size = tensor.parameters[_SIZE]
            if bytes(tensor.data) or type(size) is not int or not 0 <= size <= len(binary):
                raise Refusal(
                    400,
                    f"Input {name} has {_SIZE}={quoted(size)}, but {len(binary):,} bytes are left. Send no data in "
                    "its JSON, and that many bytes after the JSON.",
                )
            part, binary = binary[:size], binary[size:]
            values = _from_text(name, part, count) if tensor.datatype == "BYTES" else _from_bytes(tensor, part, count)
        arrays[tensor.name] = values.reshape(tensor.shape)
    if len(binary):
        raise Refusal(
            400, f"{len(binary):,} bytes follow the last tensor. Set {_SIZE} of every binary input to its bytes."
        )
    return request, arrays


def encode_reply(
    request: InferRequest, model: str, tensors: Sequence[Tensor], outputs: Batch
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a reply.

    Args:
        request: The request, which can choose outputs, and those that are binary.
        model: The name of the model.
        tensors: The outputs of the model.
        outputs: Their values.
    """
    wanted = {tensor.name: dict[str, Any]() for tensor in tensors}
    if request.outputs:
        for output in request.outputs:
            if output.name not in wanted:
                raise Refusal(
                    400, f"There is no output {quoted(output.name)}. The outputs are {quoted(', '.join(wanted))}."
                )
            _require_extensions(output.parameters)
        wanted = {output.name: output.parameters for output in request.outputs}
    binary_default = request.parameters.get("binary_data_output") is True
    entries, blocks = [], []
    for name, parameters in wanted.items():
        array = np.asarray(outputs[name])
        datatype = datatype_of(array)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if parameters.get("binary_data", binary_default) is True:
            blocks.append(_to_bytes(array, datatype))
            entry["parameters"] = {_SIZE: len(blocks[-1])}
        else:
            entry["data"] = array.ravel().tolist()
        entries.append(entry)
    reply = {"model_name": model, "model_version": "1", "outputs": entries}
    head = msgspec.json.encode(reply | {"id": request.id} if request.id else reply)
    if not blocks:
        return head, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH.lower(): str(len(head))}
    return b"".join((head, *blocks)), headers


def _require_extensions(parameters: dict[str, Any]) -> None:
    """Raise a refusal if parameters ask for an extension that this server does not have."""
    for name, extension in _MISSING.items():
        if parameters.get(name):
            raise Refusal(400, f"This server has no extension for {extension}. Leave out the parameter {name}.")


def _from_json(tensor: InputTensor, count: int) -> NDArray[Any]:
    """Return the JSON data of a tensor, flat or nested as its shape."""
    dtype = np.dtype(DATATYPES[tensor.datatype])
    kind: Any = {"b": bool, "O": str, "f": float}.get(dtype.kind, int)
    nested: Any = kind
    for _ in tensor.shape:
        nested = list[nested]
    try:
        try:
            values = msgspec.json.decode(tensor.data, type=list[kind])
        except msgspec.ValidationError:
            if len(tensor.shape) < 2:
                raise
            values = np.asarray(msgspec.json.decode(tensor.data, type=nested), dtype=object).ravel().tolist()
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=dtype)
        if array.shape != (count,):
            raise ValueError(f"{array.size} values")
    except (msgspec.MsgspecError, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise Refusal(
            400,
            f"Input {quoted(tensor.name)} needs {count} values of datatype {tensor.datatype} as JSON, for shape "
            f"{quoted(tensor.shape)}: {error}.",
        ) from None
    return array


def _from_bytes(tensor: InputTensor, part: memoryview, count: int) -> NDArray[Any]:
    dtype = np.dtype(DATATYPES[tensor.datatype]).newbyteorder("<")
    if len(part) != count * dtype.itemsize:
        raise Refusal(
            400,
            f"Input {quoted(tensor.name)} has {len(part):,} bytes, but {count:,} values of datatype {tensor.datatype} "
            f"have {count * dtype.itemsize:,}. Correct its shape or {_SIZE}.",
        )
    if tensor.datatype == "BOOL":
        return np.frombuffer(part, np.uint8) != 0
    return np.frombuffer(part, dtype).astype(dtype.newbyteorder("="))


def _from_text(name: str, part: memoryview, count: int) -> NDArray[Any]:
    texts, start = [], 0
    try:
        while start < len(part):
            (length,) = struct.unpack_from("<I", part, start)
            if start + 4 + length > len(part):
                raise ValueError("the last text is incomplete")
            texts.append(str(part[start + 4 : start + 4 + length], "utf-8"))
            start += 4 + length
        if len(texts) != count:
            raise ValueError(f"there are {len(texts):,} texts")
    except (struct.error, ValueError) as error:
        raise Refusal(
            400,
            f"Input {name} needs {count:,} texts in UTF-8, each after its length as 4 bytes, little-endian: {error}.",
        ) from None
    return np.array(texts, dtype=object)


def _to_bytes(array: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    encoded = [str(text).encode() for text in array.ravel()]
    return b"".join(part for text in encoded for part in (struct.pack("<I", len(text)), text))
