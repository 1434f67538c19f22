"""Write files and folders completely or not at all: under another name first, which a lock marks as in use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .errors import FileFormatError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Linux: relative to the working folder; exchange two names.
AT_FDCWD, RENAME_EXCHANGE = -100, 2


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


def _folder_of(path: Path, argument: str) -> Path:
    return resolved(path, argument).parent if path.is_symlink() else path.parent


def _partial_prefix(path: Path) -> str:
    name = os.fsencode(path.name)
    short = path.name if len(name) <= 120 else hashlib.sha256(name).hexdigest()  # file names have at most 255 bytes
    return f".{short}.partial-{socket.gethostname()}~"  # no host name contains ~
