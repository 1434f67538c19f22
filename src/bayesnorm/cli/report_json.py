"""Convert the contents of a report to JSON and back; a run folder stores them to write the page again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np

from ..errors import FileFormatError

if TYPE_CHECKING:
    from ..report import Report


def json_value(value: Any) -> Any:
    """Return a value, dataclass, mapping, array or sequence as JSON values."""
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)  # JSON has no infinity, and NumPy reads this text
    return value


def report_from_values(values: Any) -> Report:
    """Return the report that `json_value` described."""
    from ..report import Report

    try:
        found: Report = _read(Report, values)
        return found
    except (KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"RUN: the numbers of the report are damaged ({error!r}). Run `bayesnorm fit` again."
        ) from error


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as the type of a dataclass field; tuples and arrays are lists in JSON."""
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], entry) for entry in value)
    choices: list[Any] = [each for each in (kind, *get_args(kind)) if is_dataclass(each)]
    if not choices or value is None:
        return value
    # If a field can hold one of two dataclasses, the names of their fields show which one it is.
    chosen = next((each for each in choices if {field.name for field in fields(each)} <= value.keys()), choices[0])
    types = get_type_hints(chosen)
    # Runs of earlier versions lack newer fields, which have defaults.
    there = [field for field in fields(chosen) if field.name in value or not _has_default(field)]
    return chosen(**{field.name: _read(types[field.name], value[field.name]) for field in there})


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
