"""Download files and packages; interrupted downloads are resumed."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesnorm.errors import FileFormatError

from ..folders import DataNotFoundError
from .package_index import find_package_file

Tell = Callable[[str, int, int | None], None]
"""`tell(name, bytes, all_bytes)`: progress of a download; None if its length is unknown."""

# Seconds to wait for an answer, and how often a broken connection is retried.
PATIENCE, TRIES = 20.0, 3

# Commands of registries; they run nothing of a package. npm prints the address of the file. apt-get downloads the file
# into the current folder, and stops at the size that the registry's signed list of packages gives.
CLIENTS: dict[str, list[str]] = {
    "npm": ["npm", "view", "--silent", "{package}@{version}", "dist.tarball"],
    "apt": ["apt-get", "download", "{package}"],
}


class SourceUnreachable(DataNotFoundError):
    """Raised if a source is not available; another source may be."""


@dataclass(frozen=True)
class OfficialFile:
    """A file of a data set's publishers.

    Args:
        url: The address.
        checksum: Its digest, as "md5:..." or "sha256:..."; None if only the content is checked, when it is read.
        size: Its size in bytes, at which the download stops; without a checksum, a bound above it.
    """

    url: str
    checksum: str | None
    size: int

    @property
    def name(self) -> str:
        """Return the file's name in the folder of downloads."""
        return self.url.rpartition("/")[2]

    def fetch(self, folder: Path, tell: Tell) -> Path:
        """Return the file, downloaded now unless it exists, or raise `SourceUnreachable`.

        An interrupted download is kept, and the next call continues it.
        """
        path, part = folder / self.name, folder / f"{self.name}.part"
        if path.exists():
            require_checksum(path, self.checksum, delete=False)
            return path
        for attempt in range(TRIES):
            try:
                done, total = self._download(part, tell)
            except urllib.error.HTTPError as error:
                if error.code == 416 and part.exists():  # nothing is left to send
                    done = total = part.stat().st_size
                else:
                    raise SourceUnreachable(f"{self.url} returned {error.code} {error.reason}") from error
            except (OSError, http.client.HTTPException) as error:
                if attempt < TRIES - 1 and part.exists():
                    continue
                if part.exists():
                    raise FileFormatError(_half(part, part.stat().st_size, None, error)) from error
                raise SourceUnreachable(f"{self.url} cannot be reached ({getattr(error, 'reason', error)})") from error
            if total is None or done >= total:
                break
        else:
            raise FileFormatError(_half(part, done, total, "the connection ended"))
        require_checksum(part, self.checksum, delete=True)
        os.replace(part, path)
        return path

    def _download(self, part: Path, tell: Tell) -> tuple[int, int | None]:
        """Append the received bytes to a partial file, and return its current and its expected size."""
        done = part.stat().st_size if part.exists() else 0
        request = urllib.request.Request(self.url, headers={"User-Agent": "bayesnorm"})
        if done:
            request.add_header("Range", f"bytes={done}-")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            if answer.status != 206:
                done = 0  # the server sends the whole file again
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length else None
            self._require_size(part, total or 0)
            with part.open("ab" if done else "wb") as file:
                while chunk := answer.read(2**18):
                    file.write(chunk)
                    done += len(chunk)
                    self._require_size(part, done)
                    tell(self.name, done, total)
        return done, total

    def _require_size(self, part: Path, size: int) -> None:
        """Delete a partial file and raise an error if the file is larger than it should be."""
        if size > self.size:
            part.unlink(missing_ok=True)
            raise FileFormatError(
                f"{self.name} is not the expected file: it has more than {self.size:,} bytes. It was deleted."
            )

    def by_hand(self) -> str:
        """Return a description of the file to download by hand."""
        return f"the file {self.url}" + (f" ({self.checksum})" if self.checksum else "")


@dataclass(frozen=True)
class PackageFile:
    """A package of a registry.

    Args:
        client: "pip", or one of `CLIENTS`.
        package: Its name.
        version: Its version; "" if the client chooses it.
        ending: How its file name ends.
        checksum: Its digest; None if versions differ and only the content is checked, when it is read.
        size: Its size in bytes, at which the download stops; None if apt-get compares it with its own list.
    """

    client: str
    package: str
    version: str
    ending: str
    checksum: str | None
    size: int | None

    @property
    def name(self) -> str:
        """Return the file's name in the folder of downloads."""
        return f"{self.package}{f'-{self.version}' if self.version else ''}{self.ending}"

    def fetch(self, folder: Path, tell: Tell) -> Path:
        """Return the file, downloaded now unless it exists, or raise `SourceUnreachable`."""
        path = folder / self.name
        there = path.exists()
        if not there:
            tell(self.name, 0, None)
            with tempfile.TemporaryDirectory(dir=folder) as inner:
                os.replace(self._download(Path(inner)), path)
            tell(self.name, path.stat().st_size, path.stat().st_size)
        require_checksum(path, self.checksum, delete=not there)
        return path

    def _download(self, folder: Path) -> Path:
        """Download the file into a folder; its checksum is compared before anything opens it."""
        if self.size is None:
            self._run_client(folder)
            files = sorted(folder.glob(f"*{self.ending}"))
            if len(files) != 1:
                raise SourceUnreachable(f"{CLIENTS[self.client][0]} wrote no file that ends in {self.ending}")
            return files[0]
        if self.client == "pip":
            url = find_package_file(self.package, self.version, self.ending, self.checksum)
        else:
            url = next(iter(self._run_client(folder).split()), None)
        if url is None:
            raise SourceUnreachable(f"no registry of {self.client} has {self.name}")
        return OfficialFile(url, self.checksum, self.size).fetch(folder, lambda *_: None)

    def _run_client(self, folder: Path) -> str:
        """Run a registry's client in a folder, and return what it prints."""
        words = {"package": self.package, "version": self.version}
        command = [part.format(**words) for part in CLIENTS[self.client]]
        if shutil.which(command[0]) is None:
            raise SourceUnreachable(
                f"{command[0]} is not installed, but is needed to download the package {self.package}"
            )
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip().splitlines() or ["no reason given"]
            raise SourceUnreachable(f"{command[0]} could not download the package {self.package} ({said[-1].strip()})")
        return ended.stdout

    def by_hand(self) -> str:
        """Return a description of the package to download by hand."""
        return f"the package {self.package} {self.version} from {self.client}, as {self.name}"


def require_checksum(path: Path, checksum: str | None, *, delete: bool) -> None:
    """Refuse a file with another checksum, and delete it if it was just downloaded."""
    if checksum is None:
        return
    kind, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        result = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    if result != expected:
        size = path.stat().st_size
        if delete:
            path.unlink()
        what = "It was deleted. Run the" if delete else f"Delete {path} and run the"
        raise FileFormatError(
            f"{path.name.removesuffix('.part')} is not the expected file: it has {size:,} bytes and {kind} {result}, "
            f"expected {expected}. {what} same command again to download it."
        )


def _half(part: Path, done: int, total: int | None, why: Any) -> str:
    """Return the message about an incomplete download."""
    whole = "" if total is None else f" of {total:,}"
    return (
        f"{part.name.removesuffix('.part')} is incomplete: {done:,}{whole} bytes are in {part} ({why}). Run the same "
        "command again to continue."
    )
