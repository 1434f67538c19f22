"""Count the units of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

from bayesnorm.arguments import require_whole
from bayesnorm.errors import BayesNormError
from bayesnorm.network import Progress

from .pool import Answer
from .store import Store
from .unit import Unit, distinct


@dataclass(frozen=True)
class Tally:
    """How many units a run kept, finished and failed.

    Args:
        stored: Units with results in the store.
        finished: Units that gave a result.
        failed: Units that did not; `store.failures` says why, and the next run retries them.
    """

    stored: int
    finished: int
    failed: int


class Ledger:
    """The missing units, the next one, and the results of the others.

    Args:
        units: The units to compute; repetitions count once.
        store: The store for results.
        progress: Called with (units done, all units).
    """

    def __init__(self, units: Iterable[Unit], store: Store, progress: Progress | None) -> None:
        self.everything = distinct(units)
        self.missing = store.missing(self.everything)
        require_modules(self.missing)
        if self.missing:
            store.require_writable()
        self.stored, self.finished, self.failed = len(self.everything) - len(self.missing), 0, 0
        self._waiting = iter(self.missing)
        self._store, self._progress = store, progress

    @property
    def tally(self) -> Tally:
        """Return the numbers so far."""
        return Tally(self.stored, self.finished, self.failed)

    def tell(self) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(self.stored + self.finished + self.failed, len(self.everything))

    def take(self) -> Unit | None:
        """Return the next unit to compute, or None if there is none left."""
        for unit in self._waiting:
            if self._store.missing([unit]):
                return unit
            self.stored += 1  # another run of the same units was faster
            self.tell()
        return None

    def record(self, unit: Unit, told: Answer) -> None:
        """Write a unit's result, or its error, to the store."""
        if "error" in told:
            self._store.add_failure(unit, told["error"], told["seconds"], told["machine"])
            self.failed += 1
        else:
            self._store.add_result_text(unit, told["result"], told["seconds"], told["machine"])
            self.finished += 1


def require_count(name: str, value: int, least: int) -> int:
    """Refuse a value that is not a whole number, or too small."""
    return require_whole(name, value, least, requirement=f"a whole number from {least}")


def require_modules(units: list[Unit]) -> None:
    """Refuse units whose modules cannot be found, before anything runs."""
    for module in sorted({unit.function.partition(":")[0] for unit in units}):
        try:
            result = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            result = False
        if not result:
            raise BayesNormError(f"units: there is no module {module}. Use a module that can be imported from here.")
