"""What tests of experiments share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("typer", reason="needs typer: pip install 'bayesnorm[cli]'")

from experiments.app import run

from ..ended_commands import Command, command, refusal


@pytest.fixture
def experiments(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`experiments("show", "bench.sqlite")`: runs the command in this process."""
    return command(run, capsys, monkeypatch)


@pytest.fixture
def refuses(experiments: Command) -> Callable[..., str]:
    """`refuses("show", "none.sqlite", code=1)`: one line of error, no traceback, nothing else; gives the line."""
    return refusal(experiments)
