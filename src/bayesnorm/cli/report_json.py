"""The numbers of a report as JSON values, kept in a run's folder so that its page can be written again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FileFormatError

if TYPE_CHECKING:
    from ..report import Report


def json_value(value: Any) -> Any:
    """Return a value, or a dataclass, mapping, array or sequence of such, as what JSON has."""
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    return value


def report_from_values(values: Any) -> Report:
    """Return the report that `json_value` described."""
    from ..report import (
        Choice,
        ClassificationTest,
        Column,
        HeldOutRows,
        Provenance,
        RegressionTest,
        Report,
        Table,
        TriedSetting,
    )

    try:
        table, choice, test = dict(values["table"]), dict(values["choice"]), dict(values["test"])
        columns = tuple(_from_fields(Column, column) for column in table.pop("columns"))
        settings = tuple(_from_fields(TriedSetting, each) for each in choice["settings"])
        return Report(
            table=Table(**{**table, "columns": columns, "target": _from_fields(Column, table["target"])}),
            rows=_from_fields(HeldOutRows, values["rows"]),
            test=_from_fields(ClassificationTest if "probs" in test else RegressionTest, test),
            choice=Choice(**{**choice, "settings": settings}),
            provenance=_from_fields(Provenance, values["provenance"]),
            method=values["method"],
            title=values["title"],
            warnings=tuple(values["warnings"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"RUN: the report's numbers are damaged ({error!r}); fit it again.") from error


def _from_fields(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Return a dataclass made of its fields; what was a tuple or array is a list in JSON."""
    arrays = kind.__name__ in ("RegressionTest", "ClassificationTest")
    found = {}
    for field in fields(kind):
        value = values[field.name]
        if isinstance(value, list):
            value = np.array(value) if arrays and field.name != "classes" else tuple(value)
        found[field.name] = value
    return kind(**found)
