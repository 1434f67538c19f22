"""Commands that run in this process, how they ended, and files that have other content for a while."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bayesnorm.cli.app import run


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def outcome(self) -> str:
        """ "done", "refused" for one line of error at the end, or a fault."""
        lines = self.err.splitlines() or [""]
        if not all(line.isprintable() for line in (*lines, *self.out.splitlines())):
            return f"fault: control characters in {lines[-1]!r}"
        if self.code == 0:
            return "done"
        is_ours = lines[-1].startswith("error: ") and "Unexpected" not in lines[-1] and "Not enough" not in lines[-1]
        return "refused" if self.code in (1, 2) and is_ours else f"fault: code {self.code}, {lines[-1][:300]}"


def ended(*arguments: object) -> Ended:
    """Run a command of `bayesnorm` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run([str(argument) for argument in arguments])
        except BaseException as error:
            return Ended(-1, "", f"{type(error).__name__}: {error}")
    return Ended(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def changed(path: Path, content: bytes | None) -> Iterator[None]:
    """Give a file other content during a block; None takes the file away."""
    before = path.read_bytes() if path.is_file() else None
    try:
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        yield
    finally:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of all files of a folder by their relative names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
