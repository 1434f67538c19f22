"""The numbers of a report as JSON values, kept in a run's folder so that its page can be written again."""

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
    """Return a value, or a dataclass, mapping, array or sequence of such, as what JSON has."""
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)  # which arrays read, and JSON has no number for
    return value


def report_from_values(values: Any) -> Report:
    """Return the report that `json_value` described."""
    from ..report import Report

    try:
        found: Report = _read(Report, values)
        return found
    except (KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"RUN: the report's numbers are damaged ({error!r}); fit it again.") from error


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as the type that a field of a dataclass has; what was a tuple or array is a list in JSON."""
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], entry) for entry in value)
    choices: list[Any] = [each for each in (kind, *get_args(kind)) if is_dataclass(each)]
    if not choices or value is None:
        return value
    # Where a field may hold one of two dataclasses, the names of their fields tell which.
    chosen = next((each for each in choices if {field.name for field in fields(each)} <= value.keys()), choices[0])
    types = get_type_hints(chosen)
    # Runs of earlier versions lack what came later, and that has a default.
    there = [field for field in fields(chosen) if field.name in value or not _has_default(field)]
    return chosen(**{field.name: _read(types[field.name], value[field.name]) for field in there})


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
