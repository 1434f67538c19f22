"""Store results of units in one SQLite file that survives killed writers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesnorm.errors import BayesNormError, FileFormatError
from bayesnorm.writing import require_place

from .csv_file import write_csv
from .unit import Unit, distinct

APPLICATION = 0x62_6E_62_31  # "bnb1", which SQLite stores in the file's header
VERSION = 1

TABLE = """
CREATE TABLE units (
    key TEXT PRIMARY KEY,
    experiment TEXT NOT NULL,
    function TEXT NOT NULL,
    parameters TEXT NOT NULL,
    result TEXT,
    error TEXT,
    attempts INTEGER NOT NULL,
    seconds REAL,
    machine TEXT,
    digest TEXT NOT NULL
) WITHOUT ROWID
"""

# Existing results stay: if two runs computed the same unit, the first one counts.
WRITE = """
INSERT INTO units VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET function = excluded.function, result = excluded.result, error = excluded.error,
    attempts = attempts + 1, seconds = excluded.seconds, machine = excluded.machine,
    digest = excluded.digest
WHERE result IS NULL
"""


@dataclass(frozen=True)
class Failure:
    """A unit without a result.

    Args:
        parameters: Parameters of the unit.
        error: The error of the last attempt.
        attempts: Number of attempts.
    """

    parameters: dict[str, Any]
    error: str
    attempts: int


class Store:
    """The results of experiments, each written atomically when its unit finishes.

    A killed process leaves everything that it had written. Several processes of one machine may write at once, but not
    on a network drive. Only the thread that opened a store may use it.

    Args:
        path: The file; created if needed.
        timeout: Seconds to wait for other processes that are writing.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 60.0) -> None:
        self.path = Path(path)
        require_place(self.path)
        self._connection: sqlite3.Connection | None = None
        try:
            with self._guarded():
                self._connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None)
                self._open(timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add_result(
        self, unit: Unit, result: Any, seconds: float | None = None, machine: dict[str, Any] | None = None
    ) -> None:
        """Store a result, unless the unit has one.

        Args:
            unit: The computed unit.
            result: JSON values; a dict gives one column per name. NaN and infinities are allowed.
            seconds: Time of the computation.
            machine: Hardware and versions.
        """
        try:
            text = json.dumps(result)
        except (TypeError, ValueError) as error:
            raise BayesNormError(f"result: JSON cannot represent it ({error}). Return plain numbers.") from None
        self.add_result_text(unit, text, seconds, machine)

    def add_result_text(
        self, unit: Unit, result: str, seconds: float | None = None, machine: dict[str, Any] | None = None
    ) -> None:
        """Store a result that is already JSON; see `add_result`."""
        self._write(unit, result, None, seconds, machine)

    def add_failure(
        self, unit: Unit, error: str, seconds: float | None = None, machine: dict[str, Any] | None = None
    ) -> None:
        """Record a failed attempt, unless the unit has a result; the unit stays missing."""
        self._write(unit, None, error, seconds, machine)

    def missing(self, units: Iterable[Unit]) -> list[Unit]:
        """Return the units without a result, in order, each once."""
        query = "SELECT 1 FROM units WHERE key = ? AND result IS NOT NULL"
        return [unit for unit in distinct(units) if not self._query(query, unit.key)]

    def require_writable(self) -> None:
        """Refuse a read-only file, before results are computed that it could not store."""
        self._query("BEGIN IMMEDIATE")
        self._query("ROLLBACK")

    def experiments(self) -> list[str]:
        """Return the names of the experiments that have results or failures."""
        return [name for (name,) in self._query("SELECT DISTINCT experiment FROM units ORDER BY experiment")]

    def rows(self, experiment: str) -> list[dict[str, Any]]:
        """Return results as flat rows: parameters, result, `seconds` and `machine`, ordered by parameters.

        A result that is not a dict is called `result`. If names clash, that of the result is `result.name`.
        """
        results = []
        for unit, text, _, _, seconds, machine in self._records(experiment, "result IS NOT NULL"):
            result, row = json.loads(text), dict(unit)
            for name, value in (result if isinstance(result, dict) else {"result": result}).items():
                row[_free(name, row, "result")] = value
            row[_free("seconds", row, "unit")] = seconds
            row[_free("machine", row, "unit")] = json.loads(machine)
            results.append((_order(unit), row))
        return [row for _, row in sorted(results, key=lambda pair: pair[0])]

    def failures(self, experiment: str) -> list[Failure]:
        """Return units that were tried and have no result, ordered by parameters."""
        records = self._records(experiment, "result IS NULL")
        results = [Failure(unit, error, attempts) for unit, _, error, attempts, _, _ in records]
        return sorted(results, key=lambda failure: _order(failure.parameters))

    def export_csv(self, experiment: str, path: str | os.PathLike[str]) -> None:
        """Write `rows` to a file, atomically; lists and dicts inside as JSON, None as nothing."""
        rows = self.rows(experiment)
        if not rows:
            names = ", ".join(map(repr, self.experiments())) or "none"
            raise BayesNormError(f"experiment: {experiment!r} has no results in {self.path}, which has {names}.")
        last = [name for name in ("seconds", "machine") if all(name in row for row in rows)]
        columns = [*dict.fromkeys(name for row in rows for name in row if name not in last), *last]
        write_csv(path, columns, [[_cell(row.get(name)) for name in columns] for row in rows])

    def _open(self, timeout: float) -> None:
        """Create the table if the file is new; otherwise check that it is a complete store of this version."""
        if self._is_new():
            self._share(timeout)
            self._query("BEGIN IMMEDIATE")
            if self._is_new():  # otherwise another process was faster
                self._query(TABLE)
                self._query(f"PRAGMA application_id = {APPLICATION}")
                self._query(f"PRAGMA user_version = {VERSION}")
            self._query("COMMIT")
        application, version = self._pragma("application_id"), self._pragma("user_version")
        if application != APPLICATION:
            raise FileFormatError(f"path: {self.path} is a database, but not a bayesnorm store. Use another file name.")
        if version != VERSION:
            age = "newer" if version > VERSION else "older"
            raise FileFormatError(
                f"path: {self.path} is a store of version {version}, which is {age} than version {VERSION} of this "
                "bayesnorm. Use another file name."
            )
        if (result := self._pragma("quick_check(1)")) != "ok":
            raise FileFormatError(f"path: {self.path} is damaged ({result}). {_RESCUE}")
        self._share(timeout)

    def _is_new(self) -> bool:
        return not self._pragma("application_id") and not self._query("SELECT 1 FROM sqlite_master LIMIT 1")

    def _share(self, timeout: float) -> None:
        """Switch to a write-ahead log: readers and a writer at once, and a killed writer leaves no partial write."""
        self._query("PRAGMA synchronous = FULL")
        end = time.monotonic() + timeout
        while self._pragma("journal_mode") != "wal":
            try:
                mode = self._pragma("journal_mode = WAL")
            except BayesNormError:  # SQLite does not wait here itself
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
                continue
            if mode != "wal":  # this does not change later
                raise FileFormatError(
                    f"path: SQLite cannot use a write-ahead log for {self.path}. Use a file on a local disk."
                )

    def _write(
        self, unit: Unit, result: str | None, error: str | None, seconds: float | None, machine: dict[str, Any] | None
    ) -> None:
        identity = (unit.key, unit.experiment, unit.function, unit.text)
        # An error's text may have unpaired surrogates, as file names may.
        shown = None if error is None else error.encode("utf-8", "backslashreplace").decode()
        took = None if seconds is None else float(seconds)
        outcome = (result, shown, took, json.dumps(machine))
        self._query(WRITE, *identity, *outcome, _digest(*identity, *outcome))

    def _records(self, experiment: str, which: str) -> Iterator[tuple[dict[str, Any], str, str, int, float, str]]:
        """Yield parameters, result, error, attempts, seconds and machine, exactly as written."""
        for *fields, digest, attempts in self._query(
            "SELECT key, experiment, function, parameters, result, error, seconds, machine, digest, attempts "
            f"FROM units WHERE experiment = ? AND {which}",
            experiment,
        ):
            if digest != _digest(*fields):
                raise FileFormatError(f"path: {self.path} is damaged (unit {fields[0]} was changed). {_RESCUE}")
            _, _, _, parameters, result, error, seconds, machine = fields
            yield json.loads(parameters), result, error, attempts, seconds, machine

    def _query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._guarded():
            if self._connection is None:
                raise BayesNormError(f"store: {self.path} is closed. Open it again with Store(path).")
            return self._connection.execute(query, values).fetchall()

    def _pragma(self, name: str) -> Any:
        return self._query(f"PRAGMA {name}")[0][0]

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, which say what to do."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            raise BayesNormError(
                f"store: {self.path} could not be used ({error}). Check that the folder is writable and the disk not "
                "full, that no other program locks the file, and that only one thread uses the store."
            ) from error
        except sqlite3.DatabaseError as error:
            raise FileFormatError(f"path: {self.path} is damaged or not a store ({error}). {_RESCUE}") from error


_RESCUE = "Use another file name, or restore a copy."


def _digest(*fields: Any) -> str:
    return hashlib.sha256(json.dumps(fields).encode("ascii")).hexdigest()[:16]


def _free(name: str, row: dict[str, Any], prefix: str) -> str:
    """Return a name that the row does not have yet, with as many prefixes as needed."""
    while name in row:
        name = f"{prefix}.{name}"
    return name


def _order(value: Any) -> tuple[Any, ...]:
    """Return a key that sorts JSON values of any kind: numbers by size, text alphabetically."""
    if isinstance(value, dict):
        return (4, [(name, _order(entry)) for name, entry in sorted(value.items())])
    if isinstance(value, list):
        return (3, [_order(entry) for entry in value])
    if isinstance(value, str):
        return (2, value)
    return (0,) if value is None else (1, value, isinstance(value, float))


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)
