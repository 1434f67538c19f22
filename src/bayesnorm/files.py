"""Files that are written whole or not at all; ours are safetensors with JSON in their headers, no pickle.

Posteriors, tabular models, labels of active learning and checkpoints of training have one format with one number,
`VERSION`, which grows when a reader of before could not read what is written, or would read it wrongly. What version
0.1 of the package wrote, and any later one, is loaded by those that come after, or refused in one line that says to fit
(or to train) again. A file of a newer format is refused in one line that says to upgrade.

What is read is checked and kept: a file may be changed or cut while it is in use, and nothing notices.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import math
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes, save as to_bytes
from torch import Tensor, uint8

from .errors import FileFormatError, quoted

FORMAT = "bayesnorm-posterior"
VERSION = 1

# Bytes that a header may have, by safetensors' own rule.
LARGEST_HEADER = 100_000_000

# Objects and lists inside each other; deeper ones are refused before anything walks through them.
DEEPEST = 100


def write(
    path: Path, tensors: dict[str, Tensor], config: dict[str, Any], file_format: str = FORMAT, argument: str = "path"
) -> None:
    """Write tensors and JSON atomically: another process sees the old file or the new one, never a part.

    The same content gives the same bytes.

    Args:
        path: The file.
        tensors: Tensors by name, on any device.
        config: JSON values.
        file_format: What the file calls itself.
        argument: What the path was given as, for messages.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(config, sort_keys=True, allow_nan=False)
    told = {"format": file_format, "version": str(VERSION), "config": text, "digest": _digest(plain, text)}
    content = to_bytes(plain, metadata=told)
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]) | {"__metadata__": told}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # where tensors begin
    if len(header) > LARGEST_HEADER:
        raise FileFormatError(
            f"{argument}: {path} would describe itself in {len(header)} bytes, and files take {LARGEST_HEADER}; fewer "
            "layers or members, or columns with fewer categories, would work."
        )
    write_bytes(path, len(header).to_bytes(8, "little") + header + content[8 + size :], argument)


def as_path(given: Any, argument: str = "path") -> Path:
    """Return a file's path, or refuse what is none."""
    try:
        return Path(given)
    except TypeError as error:
        raise FileFormatError(f"{argument} must be a file's path, got {type(given).__name__}.") from error


def write_bytes(path: Path, content: bytes, argument: str = "path") -> None:
    """Write a file atomically and durably; where that fails, what was there before stays."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise FileFormatError(
            f"{argument}: {path} could not be written ({error.strerror or error}); with room for {len(content)} bytes "
            "and the right to write there, or another path, it would work. What was there before is as it was."
        ) from error


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


def read(
    path: Path, file_format: str = FORMAT, argument: str = "path", again: str = "save it again"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors, which own their memory, and JSON of a file that `write` wrote; refuse anything else.

    Args:
        path: The file.
        file_format: What the file must call itself.
        argument: What the path was given as, for messages.
        again: What messages tell to do.
    """
    tensors, header = read_tensors(path, argument, again)
    if header.get("format") != file_format:
        raise FileFormatError(
            f"{argument}: {path} is no {file_format} file (format {quoted(header.get('format'))}); {again}."
        )
    require_version(path, str(header.get("version")), argument, again)
    if "digest" not in header:
        raise FileFormatError(f"{argument}: {path} has no digest, as before version 0.1 or by other hands; {again}.")
    text = header.get("config", "")
    if header.get("digest") != _digest(tensors, text):
        raise FileFormatError(f"{argument}: {path} was altered after it was written; {again}.")
    try:
        config = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{argument}: {path} holds no JSON that write wrote ({error}); {again}.") from error
    if not isinstance(config, dict) or _is_deep(config):
        raise FileFormatError(f"{argument}: {path} holds JSON of another kind; {again}.")
    return tensors, config


def require_same_run(
    path: Path, there: dict[str, str], here: dict[str, str], same: str, argument: str, again: str
) -> None:
    """Refuse to go on from a file that another run wrote.

    Args:
        path: The file.
        there: The settings of the run that wrote it.
        here: Those of this run.
        same: What would have to be as it was then.
        argument: What the path was given as, for messages.
        again: What messages tell to do.
    """
    for name in [*here, *there]:
        if there.get(name) != here.get(name):
            raise FileFormatError(
                f"{argument}: {path} is another run's: {name} is {there.get(name, 'absent')} there and "
                f"{here.get(name, 'absent')} here; {same} as then would go on from it. Else {again}."
            )


def read_tensors(
    path: Path, argument: str = "path", again: str = "save it again"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file at once: its tensors, which own their memory, and the texts of its header."""
    if not path.is_file():
        raise FileFormatError(f"{argument}: {path} is not a file; one that bayesnorm wrote would work.")
    try:
        with path.open("rb") as file:
            size, header, text = os.fstat(file.fileno()).st_size, file.read(8), b""
            length = int.from_bytes(header, "little")
            if length <= min(size - 8, LARGEST_HEADER):  # else it is no header, and not worth reading
                text = file.read(length)
            described = json.loads(text)
            told = described.pop("__metadata__", None) or {}
            data = max((int(tensor["data_offsets"][1]) for tensor in described.values()), default=0)
            if size != 8 + length + data:
                raise ValueError(f"{size} bytes, {8 + length + data} expected")
            file.seek(0)
            content = file.read()
        if not content.startswith(header + text):
            raise ValueError("it changed while it was read")
        loaded = from_bytes(content)
        del content
    except (SafetensorError, OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise FileFormatError(f"{argument}: {path} is truncated or foreign ({error}); {again}.") from error
    except (MemoryError, RecursionError) as error:
        raise FileFormatError(f"{argument}: {path} is too large to be read ({error!r}); {again}.") from error
    # Cloned, because sums over memory that is aligned in another way may differ in the last bit.
    return {name: loaded.pop(name).clone() for name in list(loaded)}, told


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def grouped(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return tensors by the part of their names before the first dot, and then by the rest."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        first, _, rest = name.partition(".")
        found.setdefault(first, {})[rest] = tensor
    return found


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(uint8).numpy().data)
    return digest.hexdigest()


def require_version(path: Path, found: str, argument: str, again: str) -> None:
    """Refuse a file of another version of the format than this."""
    if found == str(VERSION):
        return
    if found.isdecimal() and len(found) < 10 and int(found) > VERSION:
        again = f"a newer one wrote it, and upgrading bayesnorm would work. Else {again}"
    raise FileFormatError(
        f"{argument}: {path} has format version {found[:20]}, and this bayesnorm reads {VERSION}; {again}."
    )


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object that JSON describes, or refuse one with a name that occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _finite(text: str) -> float:
    """Return a number of JSON, or refuse one such as NaN or 1e400."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} is no finite number")
    return found


def _is_deep(config: Any) -> bool:
    """Return whether JSON values are nested deeper than is ever written."""
    level, depth = [config], 0
    while level and depth <= DEEPEST:
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [entry for values in inner for entry in values if isinstance(entry, dict | list)]
        depth += 1
    return depth > DEEPEST


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
