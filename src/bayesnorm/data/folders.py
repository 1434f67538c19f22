"""Where data files are looked for: the folders in `BAYESNORM_DATA`, then the user's cache folder."""

import os
from pathlib import Path

from ..errors import BayesNormError, DataNotFoundError

VARIABLE = "BAYESNORM_DATA"


def cache_folder() -> Path:
    """Return the user's own data folder, `$XDG_CACHE_HOME/bayesnorm` or `~/.cache/bayesnorm`; it need not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification: an empty or relative value counts as not set.
    return (base if base.is_absolute() else _at_home("~/.cache")) / "bayesnorm"


def data_folders() -> list[Path]:
    """Return folders in search order: those in `BAYESNORM_DATA` (joined by `os.pathsep`), then the cache folder."""
    named = [part.strip() for part in os.environ.get(VARIABLE, "").split(os.pathsep)]
    return [*(_at_home(part) for part in named if part), cache_folder()]


def _at_home(path: str) -> Path:
    """Return a path with `~` as the home folder; as it is where nobody knows that one, as in a container."""
    return Path(os.path.expanduser(path))  # Path's own would raise there


def find(relative_path: str | os.PathLike[str]) -> Path:
    """Return the first file called `relative_path` (such as `"uci/boston.npz"`) in the data folders.

    Raises:
        DataNotFoundError: No folder has it; the message lists the folders that were searched.
    """
    return find_first(relative_path)


def find_first(*relative_paths: str | os.PathLike[str]) -> Path:
    """Return one of several files: that of the first folder that has any, and of these the first named.

    Raises:
        DataNotFoundError: No folder has any; the message lists the folders that were searched.
    """
    relatives = [Path(path) for path in relative_paths]
    for relative in relatives:
        if relative.is_absolute() or ".." in relative.parts:
            raise BayesNormError(
                f"relative_path must lie inside a data folder, got {str(relative)!r}; give for example 'uci/boston.npz'"
            )
    folders = data_folders()
    for folder in folders:
        for relative in relatives:
            if (folder / relative).is_file():
                return folder / relative
    searched = ", ".join(f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders)
    names = " or ".join(repr(relative.as_posix()) for relative in relatives)
    raise DataNotFoundError(
        f"data file {names} was not found; searched: {searched}. "
        f"Set {VARIABLE} to the folder that holds it (several joined by {os.pathsep!r}); `bayesnorm data get --help` "
        "lists what can be fetched"
    )
