"""Where results may go: nothing is overwritten unless that was asked for."""

from __future__ import annotations

from pathlib import Path

from ..errors import BayesNormError
from ..files import require_writable


def require_other(path: Path, data: Path | None) -> None:
    """Refuse to write over the table that is read.

    Args:
        path: The file to write.
        data: The table's file; None for standard input.
    """
    if data is not None and path.exists() and path.samefile(data):
        raise BayesNormError(f"--out: {path} is the table itself; another name would work.")


def require_free(path: Path, force: bool) -> None:
    """Refuse, before any work, a file that cannot be written or would be overwritten.

    Args:
        path: The file to write.
        force: Whether to overwrite it.
    """
    require_writable(path, "--out")
    if path.exists() and not force:
        raise BayesNormError(f"--out: {path} is there already; --force, or another name, would work.")
