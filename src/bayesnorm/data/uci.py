"""The eight UCI regression sets of the MCBN paper, and its train/test splits."""

import numpy as np
from numpy.typing import NDArray

from ..errors import BayesNormError, FileFormatError
from .archives import read_npz
from .folders import find

UCI_SETS: tuple[str, ...] = ("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine", "yacht")
"""Names that `load_uci` takes; energy is the heating load, wine is red wine."""


def load_uci(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One regression set in its original row order and units: `X` (N, d) and `y` (N,), both float64."""
    if name not in UCI_SETS:
        raise BayesNormError(f"name must be one of {', '.join(UCI_SETS)}, got {name!r}")
    path = find(f"uci/{name}.npz")
    X, y = (np.asarray(array, dtype=np.float64) for array in read_npz(path, "X", "y"))
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise FileFormatError(f"{path} should hold X (N, d) and y (N,), found X {X.shape} and y {y.shape}")
    return X, y


def paper_split(n_rows: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The MCBN paper's split number `split` (1 to 5; larger ones go on in the same way) of `n_rows` rows.

    NumPy's legacy generator, seeded with `split`, shuffles the row numbers; the first round(0.2 N) are the
    test rows. With the row order of `load_uci` these are the paper's own test sets.

    Returns:
        `(train_rows, test_rows)`, each in shuffled order.
    """
    if n_rows < 3:
        raise BayesNormError(f"n_rows must be at least 3 to leave a test row, got {n_rows}")
    if split < 1:
        raise BayesNormError(f"split counts from 1 (the paper has 1 to 5), got {split}")
    rows = np.arange(n_rows, dtype=np.int64)
    np.random.RandomState(split).shuffle(rows)
    n_test = round(0.2 * n_rows)
    return rows[n_test:], rows[:n_test]
