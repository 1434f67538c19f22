"""Open an existing store, for commands that only read."""

from __future__ import annotations

import os
from pathlib import Path

from bayesnorm.errors import BayesNormError

from .store import Store

DEFAULT_STORE = Path("bench.sqlite")


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store; unlike `Store` itself, never create one."""
    if not Path(path).is_file():
        raise BayesNormError(
            f"store: there is no file {path}. Pass a file that `python -m experiments uci --store` wrote."
        )
    return Store(path)


def require_experiment(store: Store, name: str) -> None:
    """Refuse a name without results or failures in the store."""
    names = store.experiments()
    if name not in names:
        there = f"Use one of {', '.join(names)}" if names else "The store is empty"
        raise BayesNormError(f"--experiment: {name!r} is not in {store.path}. {there}.")
