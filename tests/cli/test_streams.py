"""What commands print goes to a reader who stops reading, or to a disk that is full."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bayesnorm.cli import predict as module
from bayesnorm.cli.app import run

from ..marks import takes_long

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes")


@pytest.fixture
def unread():
    """A stream whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


@pytest.fixture
def ends_with(monkeypatch):
    """`ends_with(stream, arguments)`: the exit code of a command that prints there, whose end is as quiet."""

    def call(stream, *arguments):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "__stdout__", stream)
        code = run([str(argument) for argument in arguments])
        stream.close()  # as the interpreter does in the end
        return code

    return call


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("fit", "--help"),
        ("data", "--help"),
        ("data", "csv", "sklearn:diabetes", "--out", "-"),
    ],
    ids=" ".join,
)
def test_a_reader_who_has_gone(ends_with, unread, capsys, arguments):
    assert ends_with(unread, *arguments) == 141
    assert capsys.readouterr().err == ""


def test_an_error_that_nobody_reads(unread, monkeypatch):
    unread.reconfigure(line_buffering=True)  # as standard error is
    monkeypatch.setattr(sys, "stderr", unread)
    monkeypatch.setattr(sys, "__stderr__", unread)
    assert run(["report", "no_such_run"]) == 1
    unread.close()


def test_a_reader_who_goes_in_the_middle(ends_with, unread, capsys, regression_run, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 20)
    assert ends_with(unread, "predict", regression_run.run, regression_run.data) == 141
    assert capsys.readouterr().err == ""


@takes_long
def test_head(regression_run):
    command = f"{sys.executable} -m bayesnorm predict {regression_run.run} {regression_run.data}"
    told = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=120
    )
    assert (told.stdout, told.stderr) == ("141\n", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["predict", "data csv", "--version"])
def test_a_full_disk_behind_standard_output(ends_with, capsys, regression_run, command):
    places = {"predict": (regression_run.run, regression_run.data), "data csv": ("sklearn:diabetes", "--out", "-")}
    with open("/dev/full", "w") as full:
        assert ends_with(full, *command.split(), *places.get(command, ())) == 1
    assert capsys.readouterr().err == "error: No space left on device (standard output).\n"
