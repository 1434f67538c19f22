"""Protect existing files: nothing is overwritten without `--force`."""

from __future__ import annotations

from pathlib import Path

from ..errors import BayesNormError
from ..files import require_writable


def require_other(path: Path, data: Path | None) -> None:
    """Raise an error if the output file is the input table.

    Args:
        path: The file to write.
        data: The file of the table; None for standard input.
    """
    if data is not None and path.exists() and path.samefile(data):
        raise BayesNormError(f"--out: {path} is the input table. Choose another name.")


def require_free(path: Path, force: bool) -> None:
    """Raise an error, before any work, if a file cannot be written or exists already.

    Args:
        path: The file to write.
        force: Whether to overwrite it.
    """
    require_writable(path, "--out")
    if path.exists() and not force:
        raise BayesNormError(f"--out: {path} exists already. Use --force to overwrite it, or choose another name.")
