"""A store that is there, for commands that only look."""

from __future__ import annotations

import os
from pathlib import Path

from bayesnorm.errors import BayesNormError

from .store import Store

DEFAULT_STORE = Path("bench.sqlite")


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store; unlike `Store` itself, never make one."""
    if not Path(path).is_file():
        raise BayesNormError(
            f"store: there is no file {path}; what `python -m experiments uci --store` wrote would work."
        )
    return Store(path)


def require_experiment(store: Store, name: str) -> None:
    """Refuse a name that the store has neither results nor failures of."""
    known = store.experiments()
    if name not in known:
        there = f"one of {', '.join(known)} would work" if known else "it is empty"
        raise BayesNormError(f"--experiment: {name!r} is not in {store.path}; {there}.")
