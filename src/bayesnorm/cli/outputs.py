"""Where results may go: nothing is overwritten unless that was asked for."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import BayesNormError


def require_free(path: Path, force: bool) -> None:
    """Refuse, before any work, a file that cannot be written or would be overwritten.

    Args:
        path: Of the file.
        force: Whether to overwrite.
    """
    if path.is_dir():
        raise BayesNormError(f"--out: {path} is a folder; a file name would work.")
    if path.exists() and not force:
        raise BayesNormError(f"--out: {path} is there already; --force, or another name, would work.")
    require_writable(path.parent)


def require_writable(folder: Path) -> None:
    """Refuse a folder that is not there or not to be written to."""
    if not folder.is_dir():
        raise BayesNormError(f"--out: the folder {folder} does not exist; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BayesNormError(f"--out: the folder {folder} cannot be written to; another one would work.")
