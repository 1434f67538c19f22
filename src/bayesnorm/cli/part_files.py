"""Write predictions of a large table in parts, so that an interrupted command continues where it stopped.

Complete parts are kept in a folder beside the file. When all are there, they are joined, and the new file takes its
place in one step. A small table has one part, which stays in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import BayesNormError, InputError
from ..files import file_digest, read_at_most, read_json_file
from ..schema import mapping, record, text, whole
from ..writing import locked, replacing, resolved, write_bytes
from .output_files import is_parquet, naming, parquet_writer
from .scoring import Scored, Totals

# Chunks in a part.
PART_CHUNKS = 16

KEY = "key"
"""The file in the folder of parts that says what they belong to."""


# The files of the folder, and what killed writers of them leave there.
PART_NAME = re.compile(r"(key|\d{6}(\.json)?)|\.(key|\d{6}(\.json)?)\.partial-.*")

_STORED = record(digest=text, totals=record(rows=whole(1), unusual=whole(), infinite=whole(), reasons=mapping(whole())))


class PartFiles:
    """The parts of a file that are complete, and the part that is being written.

    Args:
        out: The file.
        key: What the content of the file depends on.
    """

    def __init__(self, out: Path, key: str) -> None:
        self._final = resolved(out)
        self._folder = self._final.with_name(f".{self._final.name}.parts")
        self._key, self._locks = key, contextlib.ExitStack()
        self._parquet = is_parquet(out)
        self._paths: list[Path] = []
        self._current = io.BytesIO()
        self._writer: Any = None
        self._schema: Any = None
        self._chunks, self._part_totals = 0, Totals()
        self.totals = Totals()

    def remaining(self, chunks: Iterable[Any]) -> Iterator[Any]:
        """Yield the chunks of a table that are not in the complete parts."""
        done = self.totals.rows
        for chunk in chunks:
            if done <= 0:
                yield chunk
            done -= len(chunk)

    def add(self, scored: Scored) -> None:
        """Write the predictions of the next chunk."""
        if self._parquet:
            self._schema = self._schema or scored.content.schema
            self._writer = self._writer or parquet_writer(self._current, self._schema)
            self._writer.write_table(scored.content.cast(self._schema))
        else:
            if not self.totals.rows:
                self._current.write(scored.header)
            self._current.write(scored.content)
        self._chunks += 1
        self.totals.add(scored.totals)
        self._part_totals.add(scored.totals)
        if self._chunks == PART_CHUNKS:
            self._store()

    def resume(self) -> None:
        """Take the complete parts of an interrupted command over if they belong to the same predictions."""
        if not self._folder.is_dir():
            return
        self._lock()
        if not all(PART_NAME.fullmatch(path.name) for path in self._folder.iterdir()):
            raise BayesNormError(
                f"--out: {self._folder} contains files that are no parts of predictions. Move them, or choose another "
                "name."
            )
        with contextlib.suppress(OSError, ValueError):
            if read_at_most(self._folder / KEY, len(self._key)) == self._key.encode():
                self._read_parts()
        if not self._paths:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._locks.close()
            return
        complete = {KEY, *(path.with_suffix(suffix).name for path in self._paths for suffix in ("", ".json"))}
        for path in self._folder.iterdir():
            if path.name not in complete:
                path.unlink()

    def finish(self) -> None:
        """Write the file, and remove the parts."""
        if self._writer is not None:
            self._writer.close()
        parts: list[Any] = [path.open("rb") for path in self._paths]
        with replacing(self._final) as file, contextlib.ExitStack() as stack:
            for part in parts:
                stack.enter_context(part)
            self._current.seek(0)
            last = [self._current] if self._chunks else []
            if self._parquet and parts:
                _join_parquet([*parts, *last], file)
            else:
                for part in [*parts, *last]:
                    shutil.copyfileobj(part, file, 2**20)
        self.discard()

    def discard(self) -> None:
        """Remove all parts."""
        if self._paths:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Let other processes use the parts."""
        self._locks.close()

    def _store(self) -> None:
        """Write the current part to the folder, and begin a new one."""
        if not self._paths:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._lock()
            write_bytes(self._folder / KEY, self._key.encode())
        if self._writer is not None:
            self._writer.close()
        content, path = self._current.getvalue(), self._folder / f"{len(self._paths):06}"
        write_bytes(path, content)
        # The counts are written last, so a part without them is not complete.
        totals = self._part_totals.as_json()
        stored = {"digest": self._digest(path, totals), "totals": totals}
        write_bytes(path.with_suffix(".json"), json.dumps(stored).encode())
        self._paths.append(path)
        self._current, self._writer = io.BytesIO(), None
        self._chunks, self._part_totals = 0, Totals()

    def _read_parts(self) -> None:
        """Read the counts of complete parts."""
        for number in range(len([*self._folder.iterdir()])):
            path = self._folder / f"{number:06}"
            if not path.is_file():
                return
            try:
                stored = read_json_file(path.with_suffix(".json"))
                _STORED(stored, path.name)
                if stored["digest"] != self._digest(path, stored["totals"]):
                    return
                if self._parquet:
                    file = _parquet_file(path)
                    schema = self._schema or file.schema_arrow
                    if not file.schema_arrow.equals(schema) or file.metadata.num_rows != stored["totals"]["rows"]:
                        return
                    self._schema = schema
            except (OSError, ValueError, BayesNormError):
                return
            self.totals.add(Totals.from_json(stored["totals"]))
            self._paths.append(path)

    def _digest(self, path: Path, totals: dict[str, Any]) -> str:
        """Return the SHA-256 of a part: of its place, its counts and its content."""
        parts = [self._key, path.name, totals, file_digest(path)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _lock(self) -> None:
        if not self._locks.enter_context(locked(self._folder, wait=False)):
            raise BayesNormError(
                f"--out: another process writes {self._final} now. Wait until it ends, or choose another name."
            )


@contextlib.contextmanager
def part_files(out: Path, key: str) -> Iterator[PartFiles]:
    """Yield the parts of a file; the file is written if the block succeeds.

    Parts stay after an interruption. They are removed after an error about the table, which has to be changed then.

    Args:
        out: The file.
        key: What the content of the file depends on; see `PartFiles`.
    """
    files = PartFiles(out, key)
    try:
        with naming(str(out)):
            files.resume()
            yield files
            files.finish()
    except InputError:
        files.discard()
        raise
    finally:
        files.close()


def _parquet_file(file: IO[bytes] | Path) -> Any:
    from .typed_files import load_pyarrow

    return load_pyarrow().parquet.ParquetFile(file)


def _join_parquet(parts: Sequence[IO[bytes]], file: IO[bytes]) -> None:
    """Write the row groups of several Parquet files of one schema to one file."""
    first = _parquet_file(parts[0])
    with parquet_writer(file, first.schema_arrow) as writer:
        for part in parts:
            source = _parquet_file(part)
            for group in range(source.num_row_groups):
                writer.write_table(source.read_row_group(group))
