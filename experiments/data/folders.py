"""Find data files in the folders of `BAYESNORM_DATA`, then in the user's cache folder."""

import os
from pathlib import Path

from bayesnorm.errors import BayesNormError

VARIABLE = "BAYESNORM_DATA"


class DataNotFoundError(BayesNormError):
    """Raised if a data set is in none of the data folders."""


def cache_folder() -> Path:
    """Return the user's cache folder, `$XDG_CACHE_HOME/bayesnorm` or `~/.cache/bayesnorm`; it need not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification: an empty or relative value counts as unset.
    return (base if base.is_absolute() else _at_home("~/.cache")) / "bayesnorm"


def data_folders() -> list[Path]:
    """Return folders in search order: those in `BAYESNORM_DATA` (joined by `os.pathsep`), then the cache folder."""
    named = [part.strip() for part in os.environ.get(VARIABLE, "").split(os.pathsep)]
    return [*(_at_home(part) for part in named if part), cache_folder()]


def _at_home(path: str) -> Path:
    """Return a path with `~` replaced by the home folder; unchanged if that is unknown, as in some containers."""
    return Path(os.path.expanduser(path))  # Path.expanduser would raise an error


def find(relative_path: str | os.PathLike[str]) -> Path:
    """Return the first file called `relative_path` (such as `"uci/boston.npz"`) in the data folders.

    Raises:
        DataNotFoundError: No folder has it; the message lists the searched folders.
    """
    return find_first(relative_path)


def find_first(*relative_paths: str | os.PathLike[str]) -> Path:
    """Return one of several files: from the first folder that has any of them, the first in the list.

    Raises:
        DataNotFoundError: No folder has any; the message lists the searched folders.
    """
    relatives = [Path(path) for path in relative_paths]
    for relative in relatives:
        if relative.is_absolute() or ".." in relative.parts:
            raise BayesNormError(
                f"relative_path must be inside a data folder, such as 'uci/boston.npz', got {str(relative)!r}."
            )
    folders = data_folders()
    for folder in folders:
        for relative in relatives:
            if (folder / relative).is_file():
                return folder / relative
    searched = ", ".join(f"{folder}{'' if folder.is_dir() else ' (does not exist)'}" for folder in folders)
    names = " or ".join(repr(relative.as_posix()) for relative in relatives)
    raise DataNotFoundError(
        f"The data file {names} was not found in {searched}. Set {VARIABLE} to the folder that contains it (join "
        f"several by {os.pathsep!r}), or download it: `python -m experiments data get --help` lists the data sets."
    )
