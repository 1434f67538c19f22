"""What commands print goes to a reader who stops reading, or to a disk that is full."""

import io
import json
import os
import subprocess
import sys

import pytest

from bayesnorm.cli import new_rows as module, output_files, printing
from bayesnorm.cli.app import run

from ..marks import takes_long

pd = pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
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


def test_control_characters_are_never_printed(capsys):
    dangerous = "\x1b[31m \x9b \x7f \u202e \ud800 \n \xe9"
    shown = r"\u001b[31m \u009b \u007f \u202e \ud800 \u000a " + "\xe9"
    printing.note(dangerous)
    printing.show_pairs({dangerous: dangerous, "why?": dangerous})
    told = capsys.readouterr()
    assert told.err == f"{shown}\n"
    assert told.out == f"{shown}  {shown}\nwhy?\n  {shown}\n"
    printing.show_json({dangerous: dangerous})
    text = capsys.readouterr().out
    assert json.loads(text) == {dangerous: dangerous}
    assert not set(text) & {"\x1b", "\x9b", "\x7f", "\u202e", "\ud800"}


@pytest.mark.parametrize("name", ["run\x1b[31m", "run\0", "run\udcff", "run\x9b"])
def test_names_that_no_output_could_hold_are_refused_before_any_work(refuses, regression_run, tmp_path, name):
    line = refuses("fit", regression_run.data, "--target", "price", "--out", f"{tmp_path}/{name}", code=2)
    assert line.startswith("error: The argument ")
    assert "contains control characters or invalid Unicode. Rename the file or column." in line
    assert not {"\x1b", "\0", "\udcff", "\x9b"} & {*line}


def test_labels_are_escaped_on_a_terminal(monkeypatch):
    stream = io.StringIO()
    for terminal, shown in ((True, r"a\u001b[31m"), (False, "a\x1b[31m")):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        with output_files.prediction_file(output_files.STDOUT, spreadsheet_safe=False) as write:
            write(pd.DataFrame({"label": ["a\x1b[31m"]}))
        monkeypatch.undo()
        assert stream.getvalue() == f"label\n{shown}\n"
