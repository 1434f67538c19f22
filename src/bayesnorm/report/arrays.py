"""Arrays with one value per held-out row: the checks that all tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

Array = NDArray[np.float64]


class HeldOutArrays:
    """The base of the tests: it checks arrays with one value per held-out row."""

    y: NDArray[Any]
    unusual: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.y)

    def _hold(self, rows: int, *names: str, endless: bool = False) -> None:
        """Convert fields to (rows,) finite numbers, unless they are None. With `endless` they may be infinite."""
        for name in names:
            if getattr(self, name) is None:
                continue
            array = np.asarray(getattr(self, name), dtype=np.float64)
            bad = int((np.isnan(array) if endless else ~np.isfinite(array)).sum())
            if array.shape != (rows,) or bad:
                words = "NaN" if endless else "NaN or infinite values"
                raise InputError(
                    f"{name} must have shape ({rows},) and no {words}, got shape {array.shape} with {bad} of these."
                )
            object.__setattr__(self, name, array)

    def _hold_unusual(self, rows: int) -> None:
        """Convert the mask of unusual rows to (rows,) booleans, unless it is None."""
        if self.unusual is None:
            return
        mask = np.asarray(self.unusual)
        if mask.shape != (rows,) or mask.dtype != np.bool_:
            raise InputError(f"unusual must be bool of shape ({rows},), got {mask.dtype} of shape {mask.shape}.")
        object.__setattr__(self, "unusual", mask)


def flat(values: Tensor) -> Array:
    """Return a tensor with one value per row, (N,) or (N, 1), as an array (N,)."""
    return np.asarray(values.detach().reshape(-1).double().cpu().numpy())
