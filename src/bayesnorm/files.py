"""Read and write files atomically, as safetensors with JSON in the header and without pickle.

Posteriors, tabular models, labels of active learning and training checkpoints share one format. Its number, `VERSION`,
increases when older readers could not read new files, or would read them wrongly. Every release loads files of all
earlier releases since 0.1, or refuses them with an error that says to fit or train again. A file of a newer format is
refused with an error that says to upgrade.

Files are read completely and checked at once, so later changes to a file have no effect on loaded objects.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import math
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes, save as to_bytes
from torch import Tensor, uint8

from .errors import FileFormatError, quoted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

FORMAT = "bayesnorm-posterior"
VERSION = 1

# The largest header that safetensors allows, in bytes.
LARGEST_HEADER = 100_000_000

# Linux: relative to the working folder; exchange two names.
AT_FDCWD, RENAME_EXCHANGE = -100, 2

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
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(config, sort_keys=True, allow_nan=False)
    told = {"format": file_format, "version": str(VERSION), "config": text, "digest": content_digest(plain, text)}
    content = to_bytes(plain, metadata=told)
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]) | {"__metadata__": told}, separators=(",", ":")).encode()
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


def write_bytes(path: Path, content: bytes, argument: str = "path") -> None:
    """Write a file atomically and durably; if that fails, the previous file is unchanged."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise FileFormatError(
            f"{argument}: could not write {path}: {error.strerror or error}. The previous file is unchanged. Free up "
            f"{len(content)} bytes, fix the permissions, or choose another path."
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write to that replaces `path` if the block succeeds, and is deleted if it fails.

    The new file gets the permissions of the old one. A symbolic link stays a link. Partial files of killed writers of
    the same file are deleted first.
    """
    require_place(path)
    final = resolved(path)
    mode = stat.S_IMODE(final.stat().st_mode) & 0o777 if final.exists() else None
    for left in abandoned(final):
        with contextlib.suppress(OSError):  # such as another user's file in a shared folder
            left.unlink()

    def create(new: Path) -> None:
        # Nobody who may not read the old file can open the new one.
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode | 0o600))

    with partial(final, create, lambda new: new.unlink(missing_ok=True)) as temporary:
        with temporary.open("r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            with contextlib.suppress(OSError):  # some file systems have no permissions
                temporary.chmod(mode)
        os.replace(temporary, final)


@contextlib.contextmanager
def partial(final: Path, create: Callable[[Path], object], remove: Callable[[Path], object]) -> Iterator[Path]:
    """Create a partial file or folder next to the final one, and remove it after the block unless it was renamed.

    It is locked as long as this process lives, whatever the number of the process in its container is.

    Args:
        final: The final file or folder.
        create: Creates an empty file or folder.
        remove: Removes it if it is still there.
    """
    while True:
        path = final.parent / f"{_partial_prefix(final)}{secrets.token_hex(8)}"
        try:
            create(path)
            with locked(path, wait=True):
                if path.exists():  # otherwise another process removed it before it was locked
                    yield path
                    return
        finally:
            remove(path)


def abandoned(final: Path) -> Iterator[Path]:
    """Yield the partial files and folders of writers on this machine that were killed; nobody else removes them."""
    for path in final.parent.glob(f"{glob.escape(_partial_prefix(final))}*"):
        with locked(path, wait=False) as is_locked:
            if is_locked:
                yield path


@contextlib.contextmanager
def locked(path: Path, wait: bool) -> Iterator[bool]:
    """Lock a file or folder during the block, and yield whether that was possible.

    Args:
        path: The file or folder.
        wait: Whether to wait for another process that has locked it.
    """
    with contextlib.ExitStack() as stack:
        is_locked = False
        if fcntl is not None:
            with contextlib.suppress(OSError):  # another process has locked it, or the file system has no locks
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
        yield is_locked


def exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two files or folders in one step; return False if the system cannot do this."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):  # not Linux
        return False
    return bool(rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0)


def resolved(path: Path, argument: str = "path") -> Path:
    """Return a path without symbolic links, or raise an error if links lead to each other."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileFormatError(
                f"{argument}: {path} is a symbolic link that leads to itself. Remove it, or choose another path."
            ) from None
    return path.resolve()


def require_writable(path: Path, argument: str = "path") -> None:
    """Raise an error if a file cannot be written, before work is done that could be lost.

    Args:
        path: The file.
        argument: The name of the caller's argument, for messages.
    """
    require_place(path, argument)
    require_writable_folder(_folder_of(path, argument), argument)


def require_writable_folder(folder: Path, argument: str = "path") -> None:
    """Raise an error if a folder does not exist or is not writable."""
    if not folder.is_dir():
        raise FileFormatError(f"{argument}: the folder {folder} does not exist. Create it first.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise FileFormatError(
            f"{argument}: nothing can be written to the folder {folder} ({error}). Choose another folder."
        ) from error


def require_place(path: Path, argument: str = "path") -> None:
    """Raise an error if a file cannot have this path: folders, devices, pipes, and paths in missing folders."""
    folder = _folder_of(path, argument)
    if not folder.is_dir():
        raise FileFormatError(f"{argument}: the folder {folder} does not exist. Create it first.")
    if path.is_dir():
        raise FileFormatError(f"{argument}: {path} is a folder. Pass the name of a file.")
    if path.exists() and not path.is_file():
        raise FileFormatError(f"{argument}: {path} is a device or a pipe. Pass the name of a file.")


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
            told = described.pop("__metadata__", None) or {}
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
    return {name: loaded.pop(name).clone() for name in list(loaded)}, told


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


def parse_json(text: str | bytes, finite: bool = True) -> Any:
    """Return JSON values, or raise a `ValueError`: for names that occur twice, infinite numbers and deep nesting.

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


def _folder_of(path: Path, argument: str) -> Path:
    return resolved(path, argument).parent if path.is_symlink() else path.parent


def _partial_prefix(path: Path) -> str:
    name = os.fsencode(path.name)
    short = path.name if len(name) <= 120 else hashlib.sha256(name).hexdigest()  # file names have at most 255 bytes
    return f".{short}.partial-{socket.gethostname()}~"  # no host name contains ~
