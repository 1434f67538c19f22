"""Read the contents of a report from the JSON values in a run folder."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from ..report import Report


def report_from_values(values: Any) -> Report:
    """Return the report whose contents `json_value` converted."""
    from ..report import Report

    stored: Report = _read(Report, values)
    return stored


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as the type of a dataclass field; tuples and arrays are lists in JSON."""
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], entry) for entry in value)
    choices: list[Any] = [choice for choice in (kind, *get_args(kind)) if is_dataclass(choice)]
    if not choices or value is None:
        return value
    # If a field can hold one of two dataclasses, the names of their fields show which one it is.
    chosen = next(
        (choice for choice in choices if {field.name for field in fields(choice)} <= value.keys()), choices[0]
    )
    types = get_type_hints(chosen)
    # Runs of earlier versions lack newer fields, which have defaults.
    stored = [field.name for field in fields(chosen) if field.name in value]
    return chosen(**{name: _read(types[name], value[name]) for name in stored})
