"""The frame of all commands: help, version, exit codes, errors in one line."""

import subprocess
import sys

import pytest
import typer

import bayesnorm as package
from bayesnorm.cli import app as module


def commands(group, before=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name)


ALL = sorted(commands(typer.main.get_command(module.app)))


def test_version(bayesnorm):
    assert bayesnorm("--version").out == f"bayesnorm {package.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help(bayesnorm, arguments):
    ended = bayesnorm(*arguments)
    assert ended.code == 0
    for word in ("fit", "predict", "drift", "report", "data", "--version", "--debug"):
        assert word in ended.out


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_every_command_teaches_with_an_example(bayesnorm, command):
    ended = bayesnorm(*command, "--help")
    assert ended.code == 0
    assert ended.err == ""
    assert f"bayesnorm {' '.join(command)}" in ended.out.partition("Usage:")[2].partition("\n")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frob",), "error: No such command 'frob'. See bayesnorm --help.\n"),
        (("data", "csv", "--nonsense"), "error: No such option: --nonsense. See bayesnorm data csv --help.\n"),
        (("report",), "error: Missing argument 'run'. See bayesnorm report --help.\n"),
    ],
)
def test_wrong_usage(refuses, arguments, message):
    assert refuses(*arguments, code=2).lower() == message.lower()


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (PermissionError(13, "Permission denied", "a.csv"), 1, "error: Permission denied (a.csv).\n"),
        (OSError("odd"), 1, "error: odd.\n"),
        (MemoryError(), 1, "error: Not enough memory. Use fewer rows, or smaller images.\n"),
        (package.BayesNormError("a:\n b; c."), 1, "error: a: b; c.\n"),
        (
            ZeroDivisionError("oh"),
            1,
            "error: Unexpected ZeroDivisionError: oh (run bayesnorm --debug ... to see the traceback).\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (typer.Abort(), 130, "interrupted\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_how_errors_end(bayesnorm, monkeypatch, problem, code, message):
    def fail(_name):
        raise problem

    monkeypatch.setattr(module, "load_bundled", fail)
    ended = bayesnorm("data", "csv", "sklearn:iris", "--out", "-")
    assert (ended.code, ended.out, ended.err) == (code, "", message)


def test_debug_shows_where(bayesnorm, monkeypatch):
    monkeypatch.setattr(module, "load_bundled", lambda _: 1 / 0)
    ended = bayesnorm("--debug", "data", "csv", "sklearn:iris", "--out", "-")
    assert ended.code == 1
    assert ended.err.startswith("Traceback")
    assert "error: Unexpected ZeroDivisionError" in ended.err


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_as_a_module():
    ended = python("-W", "error", "-m", "bayesnorm", "--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"bayesnorm {package.__version__}\n", "")


def test_without_typer():
    code = "import sys; sys.modules['typer'] = None; import bayesnorm_command; bayesnorm_command.main(['--version'])"
    ended = python("-W", "error", "-c", code)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == "error: the command line needs typer and rich: pip install typer rich.\n"
