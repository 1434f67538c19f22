"""Files take the place of older ones whole, and what killed writers left goes."""

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from bayesnorm import writing
from bayesnorm.errors import FileFormatError


def names_in(folder):
    return sorted(os.listdir(folder))


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    path, host = tmp_path / "out", socket.gethostname()
    left = f".out.partial-{host}~0123abcd", f".out.partial-{host}~{os.getppid()}-0123abcd"
    others = [
        ".out.partial-elsewhere~0123abcd",
        f".out.partial-{host}-2~0123abcd",  # another machine, whose name begins alike
        f".other.partial-{host}~0123abcd",
        ".out.swp",
    ]
    for name in (*left, *others):
        (tmp_path / name).touch()
    writing.write_bytes(path, b"new")
    assert names_in(tmp_path) == sorted([*others, "out"])


WRITER = """
import sys
from pathlib import Path
from bayesnorm import writing
with writing.replacing(Path(sys.argv[1])) as file:
    file.write(b"whole")
    file.flush()
    print("at work", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs locks of files")
def test_a_writer_that_lives_is_left_alone_even_if_its_number_looks_dead(tmp_path):
    """The number of a process in another container says nothing here; only the lock on the partial file counts."""
    command = [sys.executable, "-c", WRITER, tmp_path / "out"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "at work\n"
        (partial,) = tmp_path.iterdir()
        assert str(writer.pid) not in partial.name.partition("~")[2].partition("-")
        writing.write_bytes(tmp_path / "out", b"meanwhile")
        assert partial.exists()
        writer.communicate("\n", timeout=60)
    assert writer.returncode == 0
    assert (tmp_path / "out").read_bytes() == b"whole"
    assert names_in(tmp_path) == ["out"]


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of files")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_an_overwritten_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(mode)
    with writing.replacing(path) as file:
        (partial,) = (left for left in tmp_path.iterdir() if left != path)
        assert stat.S_IMODE(partial.stat().st_mode) & 0o077 & ~mode == 0, "nobody else can read the new content"
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_that_leads_to_itself(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "link")
    for write in (writing.require_place, writing.require_writable, lambda path: writing.write_bytes(path, b"x")):
        with pytest.raises(FileFormatError, match=r"link is a symbolic link that leads to itself. Remove it"):
            write(tmp_path / "link")


def test_a_writer_that_is_killed_is_cleaned_up_after(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from bayesnorm import writing
with writing.replacing(Path({str(tmp_path / "out")!r})) as file:
    file.write(b"part")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert len(names_in(tmp_path)) == 1
    assert not (tmp_path / "out").exists()
    writing.write_bytes(tmp_path / "out", b"whole")
    assert names_in(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"whole"


def test_writers_of_one_file_at_a_time_leave_one_of_their_versions(tmp_path):
    versions = [bytes([k]) * 100_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda version: writing.write_bytes(tmp_path / "out", version), versions * 5))
    assert (tmp_path / "out").read_bytes() in versions
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["x" * 240, "é" * 120])
def test_long_names(tmp_path, name):
    writing.write_bytes(tmp_path / name, b"whole")
    assert names_in(tmp_path) == [name]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    for content in (b"first", b"second"):
        writing.write_bytes(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "disk" / "real").read_bytes() == content
    assert names_in(tmp_path / "disk") == ["real"]


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with a name")
def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for check in (writing.require_place, writing.require_writable, lambda path: writing.write_bytes(path, b"x")):
        with pytest.raises(FileFormatError, match=r"path: .*pipe is a device or a pipe. Pass the name of a file"):
            check(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_folder_that_takes_no_file_is_told(tmp_path, monkeypatch):
    writing.require_writable(tmp_path / "out")
    assert names_in(tmp_path) == []

    def read_only(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    with pytest.raises(FileFormatError, match=r"--out: nothing can be written to the folder .*Read-only"):
        writing.require_writable(tmp_path / "out", "--out")
