"""The eight UCI regression sets of the MCBN paper, and its train/test splits."""

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_whole
from ..errors import BayesNormError, FileFormatError
from .archives import read_npz
from .folders import find

# Names that `load_uci` takes; energy is the heating load, wine is red wine.
UCI_SETS: tuple[str, ...] = ("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine", "yacht")


def uci_file(name: str) -> str:
    """Return where a regression set lies in a data folder."""
    return f"uci/{name}.npz"


def load_uci(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a regression set in its original row order and units: `X` (N, d) and `y` (N,), both float64."""
    if name not in UCI_SETS:
        raise BayesNormError(f"name must be one of {', '.join(UCI_SETS)}, got {name!r}")
    path = find(uci_file(name))
    X, y = read_npz(path, "X", "y")
    if X.ndim != 2 or y.shape != X.shape[:1] or {X.dtype.kind, y.dtype.kind} - set("biuf"):
        raise FileFormatError(
            f"{path} should hold X (N, d) and y (N,) of real numbers, found X {X.shape} of {X.dtype} and y {y.shape} "
            f"of {y.dtype}"
        )
    return X.astype(np.float64), y.astype(np.float64)


def paper_split(n_rows: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the MCBN paper's split number `split` (1 to 5; larger ones go on in the same way) of `n_rows` rows.

    NumPy's legacy generator, seeded with `split`, shuffles the row numbers; the first round(0.2 N) are the
    test rows. With the row order of `load_uci` these are the paper's own test sets.

    Returns:
        `(train_rows, test_rows)`, each in shuffled order.
    """
    if (as_whole(n_rows) or 0) < 3:
        raise BayesNormError(f"n_rows must be at least 3 to leave a test row, got {n_rows!r}")
    if not 1 <= (as_whole(split) or 0) < 2**32:
        raise BayesNormError(f"split counts from 1 (the paper has 1 to 5), got {split!r}")
    rows = np.arange(n_rows, dtype=np.int64)
    np.random.RandomState(split).shuffle(rows)
    n_test = round(0.2 * n_rows)
    return rows[n_test:], rows[:n_test]
