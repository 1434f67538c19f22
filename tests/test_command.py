"""The beginning of the commands: Ctrl-C and SIGTERM end them quietly, from the first moment on.

The applications here are a few lines on the module path, so that no process takes the time to import torch.
"""

import os
import signal
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="needs typer: pip install typer rich")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

ROOT = Path(__file__).parents[1]
READY = 'print("ready", flush=True)'
WAIT = f"{READY}; import time; time.sleep(60)"

# Whoever runs the tests may ignore signals, as a shell does in the background, and `nohup`.
HEEDED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
IGNORED = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.fixture
def start(tmp_path):
    """`start(code, name=text)`: a process of Python that sees these modules and has said that it is ready."""
    running = []

    def call(code, **modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        path = os.pathsep.join([str(tmp_path), *map(str, sys.path)])
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout.readline() == "ready\n", process.communicate()
        return process

    yield call
    for process in running:
        process.kill()
        process.communicate()


APPLICATION = "from bayesnorm_command import end_with; end_with('application')"
SIGNALS = pytest.mark.parametrize(
    ("number", "code", "told"), [("SIGINT", 130, "interrupted\n"), ("SIGTERM", 143, ""), ("SIGHUP", 129, "")]
)


@SIGNALS
@pytest.mark.parametrize(
    "application",
    [
        f"try:\n    {WAIT}\nexcept BaseException:\n    time.sleep(60)",
        f"def run(_):\n    {WAIT}",
        f"""
        class Last:
            def __del__(self):
                {WAIT}
        def run(_):
            import time
            Last()
            time.sleep(60)
        """,
    ],
    ids=["in an import that swallows exceptions", "at work", "in a destructor, where exceptions are dropped"],
)
def test_signals_end_a_command_quietly(start, application, number, code, told):
    if "__del__" in application and number == "SIGHUP":
        code = 143  # what was dropped is not known any more
    process = start(HEEDED + APPLICATION, application=application)
    process.send_signal(signal.Signals[number])
    assert process.communicate(timeout=30) == ("", told)
    assert process.returncode == code


@SIGNALS
def test_the_command_heeds_signals_before_it_imports_torch(start, number, code, told):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["bayesnorm"].partition(":")
    process = start(f"{HEEDED}from {module} import {name}; {name}(['--version'])", torch=WAIT)
    process.send_signal(signal.Signals[number])
    assert process.communicate(timeout=30) == ("", told)
    assert process.returncode == code


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_was_closed_goes_nowhere(tmp_path, closed):
    """As by `bayesnorm predict run new.csv >&-`; what is told does not go to the other one."""
    (tmp_path / "application.py").write_text(
        "def run(_):\n import sys\n for i in 'out', 'err': print(i, file=getattr(sys, f'std{i}'))"
    )
    path = os.pathsep.join([str(tmp_path), *map(str, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-c", APPLICATION],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.close(closed),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, *(("", "err\n") if closed == 1 else ("out\n", "")))


def test_a_signal_that_was_ignored_stays_so(start):
    """As under `nohup`, or in the background of a shell."""
    application = f"""
    import signal
    def run(_):
        {READY}
        signal.raise_signal(signal.SIGTERM)
        return 7
    """
    process = start(IGNORED + APPLICATION, application=application)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 7
