"""What tests of the command line share."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest

pytest.importorskip("typer", reason="needs typer: pip install typer rich")

from bayesnorm import report
from bayesnorm.cli.app import run
from bayesnorm.report import pictures

from ..ended_commands import Command, Ended, command, refusal


@contextlib.contextmanager
def frames_for_pictures() -> Iterator[None]:
    """Pages get frames without pictures, which take longer than these fits; `tests/report` looks at pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pictures, "themed_svg", lambda _draw, label, _prefix: f"<svg aria-label={quoteattr(label)}></svg>"
        )
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_pictures() -> Iterator[None]:
    """No picture is drawn; those that see pictures may come next in the same process."""
    with frames_for_pictures():
        yield


@pytest.fixture
def bayesnorm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`bayesnorm("data", "csv", ...)`: runs the command in this process."""
    return command(run, capsys, monkeypatch)


@pytest.fixture
def refuses(bayesnorm: Command) -> Callable[..., str]:
    """`refuses("data", "csv", ..., code=2)`: one line of error, no traceback, nothing else; gives the line."""
    return refusal(bayesnorm)


QUICK = ("--epochs", "2", "--hidden", "4", "--members", "2", "--test-fraction", "0.2")
"""Options that make a fit as short as it can be, and hold some of few rows out."""


def houses(rows: int, seed: int = 0) -> list[list[Any]]:
    """A table for regression: numbers, text, and a cell that is missing here and there."""
    generator = np.random.default_rng(seed)
    area, age = generator.uniform(30, 200, rows), generator.integers(0, 90, rows)
    town = generator.choice(["Ede", "Oss", "Ulft"], rows)
    price = 3 * area - age + 50 * (town == "Oss") + generator.normal(0, 10, rows)
    lines = [[f"{a:.2f}", int(b), c, f"{d:.3f}"] for a, b, c, d in zip(area, age, town, price, strict=True)]
    for row in range(3, rows, 17):
        lines[row][1] = ""
    return [["area", "age", "town", "price"], *lines]


def write_csv(path: Path, lines: list[list[Any]], delimiter: str = ",") -> Path:
    path.write_text("".join(delimiter.join(str(cell) for cell in line) + "\n" for line in lines))
    return path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write("a,b\\n1,2\\n", "t.csv")`: a file of this text or these bytes."""

    def make(content: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path

    return make


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """40 houses and their prices."""
    return write_csv(tmp_path / "houses.csv", houses(40))


@pytest.fixture
def fit(bayesnorm: Command, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """`fit("--seed", 3, ...)`: a short fit of the table's prices into the folder "run".

    Drawing the page takes longer than all the rest, so that it is drawn where `page=True` asks for it.
    """

    def call(*options: object, data: Path = table, target: str = "price", page: bool = False) -> Ended:
        with monkeypatch.context() as patched:
            if not page:
                patched.setattr(report, "write_report", lambda _content, path: path.write_text("no page"))
            return bayesnorm("fit", data, "--target", target, "--out", tmp_path / "run", *QUICK, *options)

    return call


@pytest.fixture
def facts(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """`facts()`: what "run" says of itself."""
    return lambda: json.loads((tmp_path / "run" / "run.json").read_text())


@dataclass(frozen=True)
class Fitted:
    """A run that is there to be looked at, not changed; the table that it was made from, and what was printed."""

    run: Path
    data: Path
    out: str
    err: str


def _fit(folder: Path, lines: list[list[Any]], *options: str) -> Fitted:
    pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")
    data = write_csv(folder / "table.csv", lines)
    out, err = io.StringIO(), io.StringIO()
    # Before a test's own module is set up, so that it has the same frames whichever comes first.
    with frames_for_pictures(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["fit", str(data), "--out", str(folder / "run"), *QUICK, *options])
    assert code == 0, err.getvalue()
    return Fitted(folder / "run", data, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """The 40 houses of `table` and their prices, as `fit()` without options trains on them."""
    return _fit(tmp_path_factory.mktemp("short"), houses(40), "--target", "price")


@pytest.fixture(scope="session")
def regression_run(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """80 houses and their prices."""
    return _fit(tmp_path_factory.mktemp("regression"), houses(80), "--target", "price")


@pytest.fixture(scope="session")
def classification_run(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """80 houses and their towns."""
    return _fit(tmp_path_factory.mktemp("classification"), houses(80), "--target", "town")
