"""Tables of the methods from papers beside `adapt`, for `readme_tables`, from results/shift_peers_streams.json."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.markdown import table
from benchmarks.results_files import read

CLEAN, CHANGING, BACK = "clean", "all", "back to clean"
ORDERS = ("mixed", "Dirichlet(1)", "Dirichlet(0.3)", "Dirichlet(0.1)", "sorted")
NETWORKS = ("ResNet-32", "ResNet-20")
OWN = ("adapt", "AdaptiveStream")
"""The package's own methods."""

Rows = list[dict[str, Any]]
Cell = Callable[[str], float | None]
"""Returns the value of a method, or None if it was not measured."""


def peer_sequences() -> str:
    """Return errors on one corruption after the other, and then on clean images."""
    return _error_table("sequence", 64, (CHANGING, BACK))


def peer_streams() -> str:
    """Return errors on streams of one corruption, and on clean streams."""
    return _error_table("streams", 64, ("corrupted", CLEAN))


def peer_probabilities() -> str:
    """Return NLL and ECE on one corruption after the other, and the time of an image."""
    results, rows = read("shift_peers_streams.json"), _rows("sequence")
    columns = {
        f"{score}, {network}, {order}": _error(rows, network, 64, order, CHANGING, place)
        for place, score in ((1, "NLL"), (2, "ECE"))
        for network in NETWORKS[:1]
        for order in ORDERS
    }
    times = results["times"] if results else []
    for size in (1, 64):
        of_size = {row["method"]: row["milliseconds per image"] for row in times if row["size"] == size}
        columns[f"ms per image, n = {size}"] = of_size.get
    return _methods_table(rows, columns)


def peer_estimates() -> str:
    """Return mean absolute errors of the estimated error on corrupted images, before and after adapting."""
    results = read("shift_peers_streams.json")
    rows = [row for row in results["estimates"] if row["images"] == "corrupted"] if results else []
    names = list(dict.fromkeys(name for row in rows for name in row["mae"]))
    head = ["estimate", *(f"{row['network']}, n = {row['size']}, {row['order']}" for row in rows)]

    def text(name: str, row: dict[str, Any]) -> str:
        return ", ".join(_bold(row["mae"][name][place], min(row["mae"][n][place] for n in names)) for place in (0, 1))

    lines = [[f"`{name}`" if name == "drift" else name, *(text(name, row) for row in rows)] for name in names]
    return table(head, lines) if rows else ""


def _error_table(stage: str, size: int, images: Sequence[str]) -> str:
    rows = _rows(stage)
    columns = {
        f"{network}, {order}": [_error(rows, network, size, order, part) for part in images]
        for network in NETWORKS
        for order in ORDERS
    }
    return _methods_table(rows, columns)


def _rows(stage: str) -> Rows:
    results = read("shift_peers_streams.json")
    return [row for row in results["streams"] if row["stage"] == stage] if results else []


def _error(rows: Rows, network: str, size: int, order: str, images: str, score: int = 0) -> Cell:
    """Return the mean error of each method; `images` is the name of a part, or "corrupted" for all corruptions."""

    def mean(method: str) -> float | None:
        for row in rows:
            if (row["network"], row["size"], row["order"], row["method"]) == (network, size, order, method):
                names = [n for n in row["scores"] if (n != CLEAN if images == "corrupted" else n == images)]
                return statistics.fmean(row["scores"][name][score] for name in names)
        return None

    return mean


def _methods_table(rows: Rows, columns: dict[str, Any]) -> str:
    """Return a table of all methods, with the best value of each column in bold, without unfinished columns.

    The package's own methods are measured last, so a column with them is finished.

    Args:
        rows: The rows, which name the methods.
        columns: By head, a cell, or several cells that are shown in one column.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    methods = [name for name in methods if name not in OWN] + [name for name in OWN if name in methods]
    cells = {head: column if isinstance(column, list) else [column] for head, column in columns.items()}
    values = {head: [[cell(method) for method in methods] for cell in column] for head, column in cells.items()}
    last = [place for place, name in enumerate(methods) if name in OWN]
    heads = [head for head in columns if last and all(values[head][0][place] is not None for place in last)]
    if not heads:
        return ""

    def text(head: str, place: int) -> str:
        parts = [
            _bold(line[place], min(value for value in line if value is not None))
            for line in values[head]
            if line[place] is not None
        ]
        return ", ".join(parts)

    lines = [
        [f"`{name}`" if name in OWN else name, *(text(head, place) for head in heads)]
        for place, name in enumerate(methods)
    ]
    return table(["method", *heads], lines)


def _bold(value: float, best: float) -> str:
    """Return a number with three decimals, in bold if it is as good as the best one."""
    text = f"{value:.3f}"
    return f"**{text}**" if text == f"{best:.3f}" else text
