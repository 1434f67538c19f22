"""Files that are written whole or not at all; a posterior's is safetensors with JSON in its header, no pickle."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends well and is gone when it does not.

    A link stays one. What writers of the same file left behind when they were killed goes first.
    """
    require_place(path)
    final = path.resolve()
    for left in left_behind(final):
        with contextlib.suppress(OSError):  # such as somebody else's, in a folder for all
            left.unlink()
    temporary = final.parent / f"{partial_name(final)}-{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_writable(path: Path, argument: str = "path") -> None:
    """Refuse a file that cannot be written, before there is anything to lose.

    Args:
        path: Of the file.
        argument: What it was given as, for messages.
    """
    require_place(path, argument)
    require_writable_folder(_folder_of(path), argument)


def require_writable_folder(folder: Path, argument: str = "path") -> None:
    """Refuse a folder that is not there or takes no file."""
    if not folder.is_dir():
        raise FileFormatError(f"{argument}: the folder {folder} does not exist; make it first.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise FileFormatError(
            f"{argument}: nothing can be written to the folder {folder} ({error}); another would work."
        ) from error


def require_place(path: Path, argument: str = "path") -> None:
    """Refuse what no file can take the place of: folders, devices, pipes, and names in folders that are not there."""
    folder = _folder_of(path)
    if not folder.is_dir():
        raise FileFormatError(f"{argument}: the folder {folder} does not exist; make it first.")
    if path.is_dir():
        raise FileFormatError(f"{argument}: {path} is a folder; give a file name.")
    if path.exists() and not path.is_file():
        raise FileFormatError(f"{argument}: {path} is a device or a pipe; give a file name.")


def partial_name(path: Path) -> str:
    """What this process calls its part of a file or folder, beside it, until it is whole."""
    return f"{_partial_prefix(path)}{os.getpid()}"


def left_behind(path: Path) -> list[Path]:
    """Parts of a file or folder that processes of this machine made which are no longer alive."""
    prefix = _partial_prefix(path)
    found = path.parent.glob(f"{glob.escape(prefix)}*")
    return [left for left in found if not _lives(left.name.removeprefix(prefix).partition("-")[0])]


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


def _folder_of(path: Path) -> Path:
    return path.resolve().parent if path.is_symlink() else path.parent


def _partial_prefix(path: Path) -> str:
    name = os.fsencode(path.name)
    short = path.name if len(name) <= 120 else hashlib.sha256(name).hexdigest()  # of at most 255 bytes in all
    return f".{short}.partial-{socket.gethostname()}~"  # which no name of a machine has in it


def _lives(number: str) -> bool:
    """Whether the process with this id is alive, as far as that can be known."""
    if os.name != "posix":
        return True  # where signal 0 is no question
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        pass
    return True
