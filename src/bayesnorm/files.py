"""Posterior files: one safetensors file whose header carries JSON; written whole or not at all; no pickle."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, uint8

from .errors import FileFormatError

FORMAT = "bayesnorm-posterior"
VERSION = 1


def write(path: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
    """Write tensors and JSON atomically: another process sees the old file or the new one, never a part."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(config, sort_keys=True, allow_nan=False)
    header = {"format": FORMAT, "version": str(VERSION), "config": text, "digest": _digest(plain, text)}
    write_bytes(path, to_bytes(plain, metadata=header))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically and durably."""
    if not path.parent.is_dir():
        raise FileFormatError(f"path: the folder {path.parent} does not exist; make it first.")
    if path.is_dir():
        raise FileFormatError(f"path: {path} is a folder; give a file name.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and JSON of a file that `write` wrote; anything else is a `FileFormatError`."""
    if not path.is_file():
        raise FileFormatError(f"path: {path} is not a file; a posterior written by posterior.save would work.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise FileFormatError(f"path: {path} is no bayesnorm posterior (format {header.get('format')!r}).")
            if header.get("version") != str(VERSION):
                raise FileFormatError(
                    f"path: {path} has format version {header.get('version')}; this bayesnorm reads {VERSION}."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"path: {path} is truncated or no bayesnorm posterior ({error}).") from error
    text = header.get("config", "")
    if header.get("digest") != _digest(tensors, text):
        raise FileFormatError(f"path: {path} was altered after it was written; save the posterior again.")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise FileFormatError(f"path: {path} does not hold JSON ({error}).") from error
    return tensors, config


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(uint8).numpy().tobytes())
    return digest.hexdigest()
