"""Load the eight UCI regression sets of the MCBN paper."""

import numpy as np
from numpy.typing import NDArray

from bayesnorm.errors import BayesNormError, FileFormatError

from .archives import read_npz
from .folders import find

# Names that `load_uci` accepts; energy is the heating load, wine is red wine.
UCI_SETS: tuple[str, ...] = ("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine", "yacht")


def uci_file(name: str) -> str:
    """Return the path of a regression set in a data folder."""
    return f"uci/{name}.npz"


def load_uci(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a regression set in its original row order and units: `X` (N, d) and `y` (N,), both float64."""
    if name not in UCI_SETS:
        raise BayesNormError(f"name must be one of {', '.join(UCI_SETS)}, got {name!r}.")
    path = find(uci_file(name))
    X, y = read_npz(path, "X", "y")
    if X.ndim != 2 or y.shape != X.shape[:1] or {X.dtype.kind, y.dtype.kind} - set("biuf"):
        raise FileFormatError(
            f"{path} must contain real numbers X (N, d) and y (N,), but has X {X.shape} of {X.dtype} and y {y.shape} "
            f"of {y.dtype}. Download the file again."
        )
    return X.astype(np.float64), y.astype(np.float64)
