"""Read NumPy archives without pickle; a truncated or other file gives a clear error."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnorm.errors import FileFormatError


def read_npz(path: Path, *keys: str) -> tuple[NDArray[Any], ...]:
    """Return the arrays called `keys` of the `.npz` file at `path`, in that order.

    Raises:
        FileFormatError: The file is not a readable archive, or lacks the arrays.
    """
    try:
        with path.open("rb") as file:  # np.load itself leaves a damaged file open
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array, not an archive")
            missing = [key for key in keys if key not in archive.files]
            if missing:
                raise ValueError(f"it has {archive.files}, but not {missing}")
            arrays = tuple(archive[key] for key in keys)
            if not all(isinstance(array, np.ndarray) for array in arrays):  # other entries are read as bytes
                raise ValueError("an entry is not an array")
            return arrays
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(
            f"{path} cannot be read as a NumPy archive with {list(keys)}: {error}. Download the file again."
        ) from error
