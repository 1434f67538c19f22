"""Where results may go: nothing is overwritten unless that was asked for."""

from __future__ import annotations

from pathlib import Path

from ..errors import BayesNormError
from ..files import require_writable


def require_free(path: Path, force: bool) -> None:
    """Refuse, before any work, a file that cannot be written or would be overwritten.

    Args:
        path: The file to write.
        force: Whether to overwrite it.
    """
    require_writable(path, "--out")
    if path.exists() and not force:
        raise BayesNormError(f"--out: {path} is there already; --force, or another name, would work.")
