"""Names of categories: whole numbers have no decimal point, so that 1, 1.0 and "1" are the same."""

from __future__ import annotations

import numbers
import re
from typing import Any

import numpy as np

WHOLE_WITH_POINT = re.compile(r"^([+-]?\d+)\.0+$")


def label(value: Any) -> str:
    """Return the name of a category; whole numbers have no decimal point, so that 1, 1.0 and "1" are the same."""
    if isinstance(value, str | bool | np.bool_) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))  # exact also for long ids, which a float would round
    return str(int(float(value))) if float(value).is_integer() else str(value)


def cell_label(value: Any) -> str:
    """Return the name of a cell's category; programs write 1.0 instead of 1 if a column has missing values."""
    return WHOLE_WITH_POINT.sub(r"\1", label(value).strip())
