"""What the server needs from a model: named inputs and outputs, and a function that predicts a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Batch = Mapping[str, NDArray[Any]]
"""Arrays by name, whose first axes have one entry for each row."""

DATATYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
"""The datatypes of the protocol and of arrays; text is an array of objects."""


@dataclass(frozen=True)
class Tensor:
    """A named input or output.

    Args:
        name: Its name.
        datatype: Its datatype in the protocol, one of `DATATYPES`.
        shape: The shape of one row; () for one number or text.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = ()


class Model(Protocol):
    """A model that the server can serve; a run of `bayesnorm fit`, or a network with its posterior.

    Only one thread calls a model. `predict` and `watch` raise a `BayesNormError` for rows that cannot be predicted.
    """

    @property
    def name(self) -> str:
        """The name in addresses."""

    @property
    def is_table(self) -> bool:
        """Whether inputs are columns of a table, so that JSON rows and CSV are accepted, with missing values."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs."""

    def predict(self, batch: Batch) -> Batch:
        """Return the outputs of rows. A row's outputs do not depend on the other rows."""

    def watch(self, batch: Batch) -> dict[str, float]:
        """Test rows of several requests for drift; return numbers for `/metrics` by name, none if it is impossible."""


def datatype_of(array: NDArray[Any]) -> str:
    """Return the datatype of an array in the protocol."""
    return next((name for name, dtype in DATATYPES.items() if array.dtype == dtype), "BYTES")
