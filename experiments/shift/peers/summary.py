"""Everything that was measured, in the form of the results file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..images import SCORES
from ..networks import CLEAN
from .measuring import Row
from .plan import ESTIMATES, TIMES

Lines = list[dict[str, Any]]
HEAD = ("stage", "network", "method", "severity", "size", "length", "every")


def summarised(lines: Lines) -> dict[str, Any]:
    """Return the results of a file of units: machines, scores by corruption, means of the estimates, and times."""
    units = [line for line in _with_machines(lines) if "rows" in line]
    return {
        "machines": list(
            {json.dumps(line["machine"]): line["machine"] for line in lines if "machine" in line}.values()
        ),
        "streams": [row for unit in units if unit["stage"] not in (ESTIMATES, TIMES) for row in _scores(unit)],
        "estimates": [row for unit in units if unit["stage"] == ESTIMATES for row in _estimate_means(unit)],
        "times": [
            {"network": unit["network"], "device": unit["device"], "size": unit["size"], **row}
            for unit in units
            if unit["stage"] == TIMES
            for row in unit["rows"]
        ],
        "failed": [
            {name: line[name] for name in (*HEAD, "error")}
            for line in lines
            if "error" in line and _identity(line) not in map(_identity, units)
        ],
    }


def as_text(results: dict[str, Any]) -> str:
    """Return results as JSON with one row in each line."""
    parts = []
    for name, rows in results.items():
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        parts.append(f' "{name}": [\n{lines}\n ]' if rows else f' "{name}": []')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _with_machines(lines: Lines) -> Lines:
    """Return the units, each with the device of the machine that was named before it."""
    device, units = "", []
    for line in lines:
        if "machine" in line:
            device = line["machine"]["device"]
        else:
            units.append({**line, "device": device})
    return units


def _identity(unit: dict[str, Any]) -> tuple[Any, ...]:
    return (*(unit[name] for name in HEAD), *unit["orders"])


def _scores(unit: dict[str, Any]) -> list[Row]:
    """Return a row for each order: error, NLL and ECE by corruption."""
    head = {name: unit[name] for name in (*HEAD, "device")}
    return [
        {
            **head,
            "order": order,
            "scores": {
                row["corruption"]: [row[score] for score in SCORES] for row in unit["rows"] if row["order"] == order
            },
        }
        for order in unit["orders"]
    ]


def _estimate_means(unit: dict[str, Any]) -> list[Row]:
    """Return a row each for clean and for corrupted images: pairs of values before and after adapting."""
    rows = []
    for name, part in (
        ("clean", [row for row in unit["rows"] if row["corruption"] == CLEAN]),
        ("corrupted", [row for row in unit["rows"] if row["corruption"] != CLEAN]),
    ):
        row = {name: unit[name] for name in (*HEAD, "device") if name not in ("method", "length", "every")}
        row |= {"order": unit["orders"][0], "images": name, "batches": sum(line["batches"] for line in part)}
        row["truth"] = np.mean([line["truth"] for line in part], 0).round(5).tolist()
        for measure in ("mae", "bias"):
            row[measure] = {
                method: np.mean([line[measure][method] for line in part], 0).round(5).tolist()
                for method in part[0][measure]
            }
        rows.append(row)
    return rows
