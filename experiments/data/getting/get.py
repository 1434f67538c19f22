"""Download a data set into a data folder and check it, or say which files to download by hand."""

from __future__ import annotations

import hashlib
import lzma
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayesnorm.errors import BayesNormError, FileFormatError, MissingExtraError
from bayesnorm.writing import replacing

from ..folders import cache_folder
from ..whole_sets import WHOLE_SETS, require_whole_split
from .files import SourceUnreachable, Tell
from .formats import Pair
from .sources import SETS, Origin, Target

# Names that `get` accepts.
OBTAINABLE: tuple[str, ...] = tuple(SETS)

# Errors of reading a broken or unexpected file.
_UNREADABLE = (
    EOFError,
    KeyError,
    OSError,
    SyntaxError,
    ValueError,
    lzma.LZMAError,
    subprocess.SubprocessError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Outcome:
    """The result of getting a data set.

    Args:
        written: Files that now exist, including those that existed before.
        missing: For each file that cannot be downloaded, a sentence that says which file to put where.
    """

    written: tuple[Path, ...]
    missing: tuple[str, ...]


def get(name: str, folder: Path | None = None, *, force: bool = False, tell: Tell | None = None) -> Outcome:
    """Download a data set and write it where the loaders find it.

    Existing files are kept. Downloads stay in the folder `downloads` until all available files are written, so a call
    after an error continues there. Files that you put there by hand are used too.

    Args:
        name: One of `OBTAINABLE`.
        folder: A data folder; None means the user's cache folder, which is searched last.
        force: Whether to overwrite existing files.
        tell: Called with the progress of a download.

    Raises:
        FileFormatError: A download is broken or incomplete; the message names the file.
    """
    if name not in SETS:
        raise BayesNormError(f"name must be one of {', '.join(OBTAINABLE)}, got {name!r}.")
    folder = cache_folder() if folder is None else folder
    downloads = folder / "downloads"
    before = {path.name for path in downloads.glob("*")}
    written: list[Path] = []
    missing: list[str] = []
    fetched: set[Path] = set()
    for target in SETS[name]:
        paths = [folder / file for file in target.files]
        if force or not all(path.is_file() for path in paths):
            try:
                fetched.update(_fetch(target, folder, downloads, tell or _silent))
            except SourceUnreachable as error:
                missing.append(str(error))
                continue
        written += paths
    for path in fetched:
        if path.name not in before:
            path.unlink(missing_ok=True)
    if downloads.is_dir() and not any(downloads.iterdir()):
        downloads.rmdir()
    return Outcome(tuple(written), tuple(missing))


def _silent(_name: str, _done: int, _total: int | None) -> None:
    """Report nothing."""


def _fetch(target: Target, folder: Path, downloads: Path, tell: Tell) -> list[Path]:
    """Write a target's files from the first available origin, and return the downloads."""
    reasons = []
    for origin in target.origins:
        try:
            downloads.mkdir(parents=True, exist_ok=True)
            paths = [file.fetch(downloads, tell) for file in origin.files]
        except SourceUnreachable as error:
            reasons.append(str(error))
            continue
        except OSError as error:
            raise FileFormatError(
                f"{downloads} cannot be written to ({error.strerror or error}). Fix the permissions, or choose "
                "another folder."
            ) from error
        try:
            contents = _read(origin, paths)
            for (file, digest), content in zip(target.files.items(), contents, strict=True):
                _require_content(paths, file, digest, content)
        except FileFormatError as error:
            unsure = [path for path, file in zip(paths, origin.files, strict=True) if file.checksum is None]
            if not unsure:
                raise
            for path in unsure:  # for example an HTML page instead of a moved file
                path.unlink(missing_ok=True)
            reasons.append(str(error))
            continue
        for file, content in zip(target.files, contents, strict=True):
            _write(folder / file, target.keys, content)
        return paths
    raise SourceUnreachable(target.by_hand(folder, downloads, reasons))


def _read(origin: Origin, paths: list[Path]) -> list[Pair]:
    """Return the content of the downloaded files."""
    try:
        return origin.read(paths)
    except MissingExtraError:
        raise
    except _UNREADABLE as error:
        raise _broken(paths, f"cannot be read ({error})") from error


def _require_content(paths: list[Path], file: str, digest: str | None, content: Pair) -> None:
    """Refuse arrays that differ from the data set's known content."""
    name, split = Path(file).parent.name, Path(file).stem
    if name in WHOLE_SETS:
        try:
            require_whole_split(name, split, *content)
        except ValueError as error:
            raise _broken(paths, str(error)) from error
    if digest is not None and content_digest(content) != digest:
        shapes = " and ".join(str(array.shape) for array in content)
        raise _broken(paths, f"the content is not that of {file} (arrays {shapes})")


def content_digest(arrays: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of arrays' shapes and values; images as bytes, other numbers as float64."""
    digest = hashlib.sha256()
    for array in arrays:
        plain = array if array.dtype == np.uint8 and array.ndim > 1 else array.astype(np.float64)
        digest.update(str(plain.shape).encode() + np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()


def _broken(paths: list[Path], why: str) -> FileFormatError:
    return FileFormatError(f"{', '.join(path.name for path in paths)} in {paths[0].parent}: {why}")


def _write(path: Path, keys: tuple[str, str], content: Pair) -> None:
    """Write an archive atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, **dict(zip(keys, content, strict=True)))  # type: ignore[arg-type]
    except OSError as error:
        raise FileFormatError(
            f"Could not write {path}: {error.strerror or error}. Free up disk space, or choose another folder."
        ) from error
