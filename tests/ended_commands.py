"""Commands that run in the tests' own process, and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


def command(
    run: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs an application with any arguments, on a terminal of 120 columns.

    Args:
        run: Runs the application and returns the exit code.
    """
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> Ended:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        told = capsys.readouterr()
        return Ended(code, told.out, told.err)

    return call


def refusal(call: Command) -> Callable[..., str]:
    """Return a function that sees one line of error, no traceback, and nothing else; it gives the line."""

    def refuse(*arguments: object, code: int = 1) -> str:
        ended = call(*arguments)
        assert ended.code == code, ended
        assert ended.out == ""
        assert ended.err.count("\n") == 1, ended.err
        assert ended.err.startswith("error: ")
        return ended.err

    return refuse
