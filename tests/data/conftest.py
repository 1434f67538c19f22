"""Real data where it is found, and an isolated data folder where it must not be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bayesnorm.data import find
from bayesnorm.errors import DataNotFoundError


@pytest.fixture
def require() -> Callable[..., None]:
    """`require("uci/boston.npz", ...)` skips the test, saying why, where one of the files is not found."""

    def check(*relative_paths: str) -> None:
        for relative_path in relative_paths:
            if relative_path.endswith(".webp"):
                pytest.importorskip("PIL", reason="needs Pillow: pip install 'bayesnorm[data]'")
            try:
                find(relative_path)
            except DataNotFoundError as error:
                pytest.skip(f"needs real data: {error}")

    return check


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only one in `BAYESNORM_DATA`; the cache folder does not exist."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("BAYESNORM_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder
