"""A store that is there, for commands that only look."""

from __future__ import annotations

from pathlib import Path

from bayesnorm.errors import BayesNormError

from ..bench import Store

DEFAULT_STORE = Path("bench.sqlite")


def open_store(path: Path) -> Store:
    """Open a store; unlike `Store` itself, never make one."""
    if not path.exists():
        raise BayesNormError(f"STORE: there is no file {path}; what `bayesnorm bench uci --store` wrote would work.")
    return Store(path)


def require_experiment(store: Store, name: str) -> None:
    """Refuse a name that the store has neither results nor failures of."""
    known = store.experiments()
    if name not in known:
        there = f"one of {', '.join(known)} would work" if known else "it is empty"
        raise BayesNormError(f"--experiment: {name!r} is not in {store.path}; {there}.")
