"""Means over corruptions of everything that was measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..images import SCORES
from ..networks import CLEAN
from .measuring import BACK, Row
from .plan import ESTIMATES, SEQUENCE, TIMES

Lines = list[dict[str, Any]]


def summarised(lines: Lines) -> dict[str, Any]:
    """Return the results of a file of units: the machine, and the means of every stage."""
    units = [line for line in lines if "rows" in line]
    return {
        "machine": next((line["machine"] for line in lines if "machine" in line), {}),
        "streams": [row for unit in units if unit["stage"] not in (ESTIMATES, TIMES) for row in _score_means(unit)],
        "estimates": [row for unit in units if unit["stage"] == ESTIMATES for row in _estimate_means(unit)],
        "times": [
            {"network": unit["network"], "size": unit["size"], **row}
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


HEAD = ("stage", "network", "method", "severity", "size", "length")


def _identity(unit: dict[str, Any]) -> tuple[Any, ...]:
    return (*(unit[name] for name in HEAD), *unit["orders"])


def _score_means(unit: dict[str, Any]) -> list[Row]:
    """Return a row for each order: the mean scores on corrupted images, and those on clean ones."""
    rows = []
    clean_name = BACK if unit["stage"] == SEQUENCE else CLEAN
    for order in unit["orders"]:
        of_order = [row for row in unit["rows"] if row["order"] == order]
        corrupted = [row for row in of_order if row["corruption"] != clean_name]
        clean = [row for row in of_order if row["corruption"] == clean_name]
        row = {name: unit[name] for name in HEAD} | {"order": order, "corruptions": len(corrupted)}
        for name, part in (("corrupted", corrupted), ("clean", clean)):
            row[name] = [round(float(np.mean([line[score] for line in part])), 5) for score in SCORES]
        rows.append(row)
    return rows


def _estimate_means(unit: dict[str, Any]) -> list[Row]:
    """Return a row each for clean and for corrupted images: pairs of values before and after adapting."""
    rows = []
    for name, part in (
        ("clean", [row for row in unit["rows"] if row["corruption"] == CLEAN]),
        ("corrupted", [row for row in unit["rows"] if row["corruption"] != CLEAN]),
    ):
        row = {name: unit[name] for name in HEAD if name not in ("method", "length")}
        row |= {"order": unit["orders"][0], "images": name, "batches": sum(line["batches"] for line in part)}
        row["truth"] = np.mean([line["truth"] for line in part], 0).round(5).tolist()
        for measure in ("mae", "bias"):
            row[measure] = {
                method: np.mean([line[measure][method] for line in part], 0).round(5).tolist()
                for method in part[0][measure]
            }
        rows.append(row)
    return rows
