"""What tests of the bench share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.bench import Store, Unit

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(HERE))
    yield
    sys.modules.pop("fake_units", None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.db") as opened:
        yield opened


@pytest.fixture
def units() -> Callable[..., list[Unit]]:
    """`units("square", 10, ...)`: one for each x from 0 on."""

    def make(function: str, count: int, **parameters: Any) -> list[Unit]:
        return [Unit("test", f"fake_units:{function}", {"x": x, **parameters}) for x in range(count)]

    return make


@pytest.fixture
def table() -> Callable[..., list[dict[str, Any]]]:
    """The rows of a store, less what differs between runs."""

    def read(store: Store, experiment: str = "test") -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if name not in ("seconds", "machine")}
            for row in store.rows(experiment)
        ]

    return read
