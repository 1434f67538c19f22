"""Read and write files: safetensors with JSON in the header and without pickle.

Posteriors, tabular models, labels of active learning and training checkpoints share one format. Its number, `VERSION`,
increases when older readers could not read new files, or would read them wrongly. Every release loads files of all
earlier releases since 0.1, or refuses them with an error that says to fit or train again. A file of a newer format is
refused with an error that says to upgrade.

Files are read completely and checked at once, so later changes to a file have no effect on loaded objects.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes, save as to_bytes
from torch import Tensor, uint8

from .errors import FileFormatError, quoted
from .writing import write_bytes

T = TypeVar("T")

FORMAT = "bayesnorm-posterior"
VERSION = 1

# The largest header that safetensors allows, in bytes.
LARGEST_HEADER = 100_000_000

# The largest file of JSON that is read, in bytes.
LARGEST_JSON = 2**25

# The deepest nesting of objects and lists; deeper JSON is refused before any code walks through it.
DEEPEST = 100


def write(
    path: Path, tensors: dict[str, Tensor], config: dict[str, Any], file_format: str = FORMAT, argument: str = "path"
) -> None:
    """Write tensors and JSON atomically: other processes see the old file or the new one, never a part of it.

    The same content always gives the same bytes.

    Args:
        path: The file.
        tensors: Tensors by name, on any device.
        config: JSON values.
        file_format: The format name to write into the file.
        argument: The name of the caller's argument, for messages.
    """
    plain, places = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        place = value.untyped_storage().data_ptr()
        plain[name] = value.clone() if place in places else value  # safetensors refuses tensors that share memory
        places.add(place)
    text = json.dumps(config, sort_keys=True, allow_nan=False)
    metadata = {"format": file_format, "version": str(VERSION), "config": text, "digest": content_digest(plain, text)}
    content = to_bytes(plain, metadata=metadata)
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]) | {"__metadata__": metadata}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # aligns the tensors
    if len(header) > LARGEST_HEADER:
        raise FileFormatError(
            f"{argument}: the header of {path} needs {len(header)} bytes, but at most {LARGEST_HEADER} are possible. "
            "Use fewer layers or members, or columns with fewer categories."
        )
    write_bytes(path, len(header).to_bytes(8, "little") + header + content[8 + size :], argument)


def as_path(value: Any, argument: str = "path") -> Path:
    """Return the path of a file, or raise an error if the value is not a path."""
    try:
        return Path(value)
    except TypeError as error:
        raise FileFormatError(f"{argument} must be the path of a file, got {type(value).__name__}.") from error


def read(
    path: Path, file_format: str = FORMAT, argument: str = "path", again: str = "save it again"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the JSON of a file that `write` wrote, or raise an error for any other file.

    Args:
        path: The file.
        file_format: The format name that the file must have.
        argument: The name of the caller's argument, for messages.
        again: What the user should do if the file is unusable, for messages.
    """
    tensors, header = read_tensors(path, argument, again)
    if header.get("format") != file_format:
        raise FileFormatError(
            f"{argument}: {path} is not a {file_format} file (its format is {quoted(header.get('format'))}). To "
            f"fix this, {again}."
        )
    require_version(path, str(header.get("version")), argument, again)
    if "digest" not in header:
        raise FileFormatError(
            f"{argument}: {path} has no digest, so bayesnorm 0.1 or later did not write it. To fix this, {again}."
        )
    text = header.get("config", "")
    if header.get("digest") != content_digest(tensors, text):
        raise FileFormatError(f"{argument}: {path} was changed after it was written. To fix this, {again}.")
    try:
        config = parse_json(text)
    except ValueError as error:
        raise FileFormatError(f"{argument}: {path} contains invalid JSON ({error}). To fix this, {again}.") from error
    if not isinstance(config, dict):
        raise FileFormatError(f"{argument}: {path} contains JSON that bayesnorm did not write. To fix this, {again}.")
    return tensors, config


def require_same_run(
    path: Path, there: dict[str, str], here: dict[str, str], same: str, argument: str, again: str
) -> None:
    """Raise an error if a file was written by a run with other settings.

    Args:
        path: The file.
        there: The settings of the run that wrote the file.
        here: The settings of this run.
        same: What must be unchanged to continue, for the message.
        argument: The name of the caller's argument, for messages.
        again: What the user should do otherwise, for the message.
    """
    for name in [*here, *there]:
        if there.get(name) != here.get(name):
            raise FileFormatError(
                f"{argument}: {path} is from another run: {name} is {there.get(name, 'absent')} there and "
                f"{here.get(name, 'absent')} here. To continue that run, use {same} as before. Otherwise, {again}."
            )


def read_tensors(
    path: Path, argument: str = "path", again: str = "save it again"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file and the metadata of its header, read in one go."""
    if not path.is_file():
        raise FileFormatError(f"{argument}: {path} is not a file. Pass a file that bayesnorm wrote.")
    try:
        with path.open("rb") as file:
            size, header, text = os.fstat(file.fileno()).st_size, file.read(8), b""
            length = int.from_bytes(header, "little")
            if length <= min(size - 8, LARGEST_HEADER):  # otherwise this is not a header
                text = file.read(length)
            described = json.loads(text)
            metadata = described.pop("__metadata__", None) or {}
            data = max((int(tensor["data_offsets"][1]) for tensor in described.values()), default=0)
            if size != 8 + length + data:
                raise ValueError(f"it has {size} bytes instead of {8 + length + data}")
            file.seek(0)
            content = file.read()
        if not content.startswith(header + text):
            raise ValueError("it changed while it was read")
        loaded = from_bytes(content)
        del content
    except (SafetensorError, OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise FileFormatError(
            f"{argument}: {path} is truncated or not a bayesnorm file ({error}). To fix this, {again}."
        ) from error
    except (MemoryError, RecursionError) as error:
        raise FileFormatError(f"{argument}: {path} is too large to read ({error!r}). To fix this, {again}.") from error
    # Cloned, because sums over memory with another alignment may differ in the last bit.
    return {name: loaded.pop(name).clone() for name in list(loaded)}, metadata


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, keyed by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def prefixed(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return values whose names start with `prefix` in addition; for tensors, the inverse of `under`."""
    return {f"{prefix}{name}": value for name, value in values.items()}


def grouped(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return tensors grouped by the part of their names before the first dot, keyed by the rest."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        first, _, rest = name.partition(".")
        groups.setdefault(first, {})[rest] = tensor
    return groups


def content_digest(tensors: dict[str, Tensor], text: str) -> str:
    """Return the SHA-256 of tensors in main memory, with their names, types and shapes, and of a text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(uint8).numpy().data)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_version(path: Path, version: str, argument: str, again: str) -> None:
    """Raise an error if a file has another format version than this one."""
    if version == str(VERSION):
        return
    if version.isdecimal() and len(version) < 10 and int(version) > VERSION:
        again = f"upgrade bayesnorm, because a newer version wrote it, or {again}"
    raise FileFormatError(
        f"{argument}: {path} has format version {version[:20]}, but this bayesnorm reads version {VERSION}. To fix "
        f"this, {again}."
    )


def read_at_most(path: Path, most: int) -> bytes:
    """Return the content of a file, or raise a `ValueError` if it has more than `most` bytes, or no end."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def read_json_file(path: Path, finite: bool = True) -> Any:
    """Return the values of a JSON file, or raise a `ValueError` or an `OSError`; see `parse_json`."""
    return parse_json(read_at_most(path, LARGEST_JSON), finite)


def parse_json(text: str | bytes, finite: bool = True) -> Any:
    """Return JSON values, or raise a `ValueError`: for names that occur twice, infinite numbers, deep
    nesting and invalid Unicode.

    Args:
        text: The JSON.
        finite: Whether NaN and infinite numbers are refused.
    """
    parse = _finite if finite else float
    try:
        values = json.loads(text, object_pairs_hook=_without_twins, parse_constant=parse, parse_float=parse)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    if _is_deep([values]):
        raise ValueError("its values are nested too deeply")
    json.dumps(values, ensure_ascii=False).encode()  # fails for invalid Unicode
    return values


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict, or raise an error if a name occurs twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return entries


def _finite(text: str) -> float:
    """Return a JSON number, or raise an error if it is not finite, such as NaN or 1e400."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _is_deep(config: Any) -> bool:
    """Return whether JSON values are nested deeper than this package ever writes them."""
    level, depth = [config], 0
    while level and depth <= DEEPEST:
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [entry for values in inner for entry in values if isinstance(entry, dict | list)]
        depth += 1
    return depth > DEEPEST
