"""Where `bayesnorm fit` writes to: nothing is ever half-written, nor replaced unless that was asked for."""

import errno
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from bayesnorm import writing
from bayesnorm.cli import run_folder

from ..marks import takes_long
from .conftest import QUICK

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
tabular = pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")


def test_a_run_is_replaced_only_when_told(fit, refuses, short_run, table, tmp_path):
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "run", "--quiet", *QUICK)
    shutil.copytree(short_run.run, tmp_path / "run")
    (tmp_path / "run" / "mark").touch()
    assert "already contains a run. Use --force to replace it, or choose another name" in refuses(*arguments)
    assert (tmp_path / "run" / "mark").exists()
    assert fit("--quiet", "--force").code == 0
    assert not (tmp_path / "run" / "mark").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv", "run"]


def test_what_is_no_run_is_never_replaced(refuses, table, tmp_path):
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "run", "--force", *QUICK)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    assert "exists and is not a run of `bayesnorm fit`. Choose another name" in refuses(*arguments)
    (tmp_path / "run" / "thesis.txt").rename(tmp_path / "thesis.txt")
    (tmp_path / "run").rmdir()
    (tmp_path / "run").write_text("a file")
    assert "exists and is not a run" in refuses(*arguments)


def test_an_empty_folder_may_become_the_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    run_folder.require_run_free(run, force=False)
    with run_folder.new_run(run) as folder:
        (folder / "new").touch()
    assert [path.name for path in run.iterdir()] == ["new"]


def test_a_place_that_cannot_be_written_to(refuses, table, tmp_path, monkeypatch):
    arguments = ("fit", table, "--target", "price", *QUICK, "--out")
    assert "does not exist. Create it first" in refuses(*arguments, tmp_path / "no" / "run")

    def read_only(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    line = refuses(*arguments, tmp_path / "run")
    assert f"--out: nothing can be written to the folder {tmp_path} ([Errno 30] Read-only file system)" in line


def test_a_failure_in_the_middle_leaves_nothing(refuses, table, tmp_path, monkeypatch):
    def full(self, path):
        path.write_text("part")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(tabular.BayesNormRegressor, "save", full)
    line = refuses("fit", table, "--target", "price", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert "No space left on device" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv"]


@pytest.fixture
def full_disk(monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)


def test_a_full_disk(full_disk, refuses, regression_run, table, tmp_path):
    """The line names the file as the user knows it, what was there stays, and nothing is left."""
    (tmp_path / "out").write_text("old")
    run, out = shutil.copytree(regression_run.run, tmp_path / "run"), tmp_path / "out"
    for file, *arguments in (
        (run / "model.bayesnorm", "fit", table, "--target", "price", "--out", run, "--quiet", "--force", *QUICK),
        (out, "predict", run, regression_run.data, "--out", out, "--force"),
        (out, "report", run, "--out", out),
    ):
        line = refuses(*arguments)
        assert "No space left on device" in line
        assert str(file) in line
        assert ".partial" not in line
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv", "out", "run"]
    assert (run / "model.bayesnorm").read_bytes() == (regression_run.run / "model.bayesnorm").read_bytes()


def partial_folder(token):
    return f".run.partial-{socket.gethostname()}~{token}"


def test_what_killed_runs_left_is_cleaned_up(tmp_path):
    dead, living, foreign = partial_folder("0a"), partial_folder("0b"), ".run.partial-elsewhere~0a"
    for name in (dead, living, foreign):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bayesnorm").touch()
    with writing.locked(tmp_path / living, wait=True):
        run_folder.require_run_free(tmp_path / "run", force=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living, foreign])


def test_a_run_whose_successor_was_killed_while_taking_its_place_comes_back(regression_run, refuses, table, tmp_path):
    shutil.copytree(regression_run.run, tmp_path / f"{partial_folder('0a')}-old")
    line = refuses("fit", table, "--target", "price", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert "already contains a run" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv", "run"]
    assert (tmp_path / "run" / "model.bayesnorm").exists()


def test_a_link_that_leads_to_itself(refuses, table, tmp_path):
    (tmp_path / "run").symlink_to(tmp_path / "run")
    line = refuses("fit", table, "--target", "price", "--out", tmp_path / "run", *QUICK)
    assert f"--out: {tmp_path / 'run'} is a symbolic link that leads to itself. Remove it, or choose another" in line


def test_a_replaced_run_keeps_its_permissions(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "model").touch()
    (run / "model").chmod(0o600)
    run.chmod(0o700)
    with run_folder.new_run(run) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "model").write_text("new")
        (folder / "new").touch()
    assert (run / "model").read_text() == "new"
    assert [path.stat().st_mode & 0o777 for path in (run, run / "model")] == [0o700, 0o600]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can exchange two names")
@pytest.mark.parametrize("step", range(4))
def test_a_killed_process_leaves_the_old_or_the_new_run(tmp_path, monkeypatch, step):
    """The process dies before one of the steps that change names."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "old").touch()
    child = os.fork()
    if not child:
        steps = itertools.count()

        def die_before(function):
            def step_or_die(*arguments, **options):
                if next(steps) == step:
                    os._exit(9)
                return function(*arguments, **options)

            return step_or_die

        for where, name in ((Path, "rename"), (os, "replace"), (run_folder, "exchange"), (shutil, "rmtree")):
            monkeypatch.setattr(where, name, die_before(getattr(where, name)))
        with run_folder.new_run(run) as folder:
            (folder / "new").touch()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (9 if step < 3 else 0)
    assert [path.name for path in run.iterdir()] == ["old" if step == 0 else "new"]
    run_folder.require_run_free(tmp_path / "other", force=False)


@pytest.mark.parametrize(
    ("number", "code", "told"), [("SIGINT", 130, "interrupted\n"), pytest.param("SIGTERM", 143, "", marks=takes_long)]
)
def test_a_fit_that_is_told_to_end_leaves_nothing(table, tmp_path, number, code, told):
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    arguments = ["fit", str(table), "--target", "price", "--out", str(tmp_path / "run"), "--epochs", "100000"]
    command = f"{start}from bayesnorm_command import main; main({[*arguments, '--quiet']!r})"
    with subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not list(tmp_path.glob(".run.partial-*")):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.Signals[number])
        assert process.communicate(timeout=60)[1] == told
    assert process.returncode == code
    assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv"]


@pytest.fixture
def terminated(monkeypatch):
    """`terminated(object, name)`: SIGTERM, which is an exit, comes right after each call of an object's function."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def prepare(where, name):
        first = getattr(where, name)

        def call(*arguments, **options):
            try:
                return first(*arguments, **options)
            finally:
                signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(where, name, call)

    yield prepare
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("where", "name", "left"),
    [(Path, "mkdir", "old"), (run_folder, "exchange", "new"), (Path, "rename", "new"), (shutil, "rmtree", "new")],
)
def test_a_run_is_the_old_or_the_new_one_whenever_told_to_end(terminated, tmp_path, monkeypatch, where, name, left):
    run = tmp_path / "run"
    run.mkdir()
    (run / "old").touch()
    if name == "rename":
        monkeypatch.setattr(run_folder, "exchange", lambda *_: False)  # as on other systems than Linux
    terminated(where, name)
    with pytest.raises(SystemExit), run_folder.new_run(run) as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert [path.name for path in run.iterdir()] == [left]


def test_an_old_run_stays_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    (run / "old").touch()

    def fail(path, target, first=Path.rename):
        if target == run and path.name.endswith(run_folder.OLD_SUFFIX) is False:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        first(path, target)

    monkeypatch.setattr(run_folder, "exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output error"), run_folder.new_run(run) as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert [path.name for path in run.iterdir()] == ["old"]
