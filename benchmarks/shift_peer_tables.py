"""Tables of the methods from papers beside `adapt`, for `readme_tables`, from results/shift_peers_streams.json."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.markdown import table
from benchmarks.results_files import read

SCORES = ("error", "NLL", "ECE")
ORDERS = ("mixed", "Dirichlet(1)", "Dirichlet(0.3)", "Dirichlet(0.1)", "sorted")
PUBLISHED = ("ResNet-20", "ResNet-32")
OWN = ("adapt", "AdaptiveStream")
"""The package's own methods."""

Rows = list[dict[str, Any]]
Cell = Callable[[str], float | None]
"""Returns the value of a method, or None if it was not measured."""


def peer_streams() -> str:
    """Return errors at severity 5 with batches of 64, by the order of images, for the published networks."""
    results = read("shift_peers_streams.json")
    if results is None:
        return ""
    rows = results["streams"]

    def error(order: str, images: str) -> Cell:
        return lambda method: _mean(rows, method, "streams", 64, (order,), images)

    columns: dict[str, Cell] = {order: error(order, "corrupted") for order in ORDERS}
    columns["mean of the five"] = lambda method: _mean(rows, method, "streams", 64, ORDERS, "corrupted")
    columns |= {f"clean, {order}": error(order, "clean") for order in ("mixed", "sorted")}
    return _methods_table(rows, columns)


def peer_protocols() -> str:
    """Return errors of the standard protocol and of streams of changing corruptions."""
    results = read("shift_peers_streams.json")
    if results is None:
        return ""
    rows = results["streams"]
    columns: dict[str, Cell] = {
        "9,000 images in random order, batches of 200": lambda m: _mean(
            rows, m, "standard", 200, ("mixed",), "corrupted"
        ),
        "the same, clean": lambda m: _mean(rows, m, "standard", 200, ("mixed",), "clean"),
        "one corruption after the other, mixed": lambda m: _mean(rows, m, "sequence", 64, ("mixed",), "corrupted"),
        "then clean": lambda m: _mean(rows, m, "sequence", 64, ("mixed",), "clean"),
        "one after the other, five orders": lambda m: _mean(rows, m, "sequence", 64, ORDERS, "corrupted"),
        "then clean, five orders": lambda m: _mean(rows, m, "sequence", 64, ORDERS, "clean"),
    }
    return _methods_table(rows, columns)


def peer_sizes() -> str:
    """Return errors by batch size, NLL and ECE, means over the five orders, and the time of an image."""
    results = read("shift_peers_streams.json")
    if results is None:
        return ""
    rows = results["streams"]

    def size_cell(size: int, score: int = 0) -> Cell:
        return lambda method: _mean(rows, method, "streams", size, ORDERS, "corrupted", score)

    def time(size: int) -> Cell:
        times = {row["method"]: row["milliseconds per image"] for row in results["times"] if row["size"] == size}
        return times.get

    columns = {f"error, n = {size}": size_cell(size) for size in (1, 8, 64, 200)}
    columns |= {f"{SCORES[score]}, n = 64": size_cell(64, score) for score in (1, 2)}
    columns |= {f"ms per image, n = {size}": time(size) for size in (1, 64)}
    return _methods_table(rows, columns)


def peer_networks() -> str:
    """Return errors of the networks of our own training, and by severity for the published ones."""
    results = read("shift_peers_streams.json")
    if results is None:
        return ""
    rows = results["streams"]
    some = ("mixed", "Dirichlet(0.3)", "sorted")
    trained = sorted({row["network"] for row in rows} - set(PUBLISHED))
    columns: dict[str, Cell] = {}
    for depth in ("20", "32"):
        names = [name for name in trained if name.startswith(f"resnet{depth}_")]
        if names:
            columns[f"ResNet-{depth}, {len(names)} own trainings"] = lambda m, names=names: _mean(  # type: ignore[misc]
                rows, m, "streams", 64, some, "corrupted", networks=names
            )
    for severity in (1, 2, 3, 4):
        columns[f"published, severity {severity}"] = lambda m, severity=severity: _mean(  # type: ignore[misc]
            rows, m, "severities", 64, some, "corrupted", severity=severity
        )
    columns["published, severity 5"] = lambda m: _mean(rows, m, "streams", 64, some, "corrupted")
    return _methods_table(rows, columns)


def peer_estimates() -> str:
    """Return mean absolute errors of the estimated error, before and after adapting."""
    results = read("shift_peers_streams.json")
    if results is None:
        return ""
    rows = results["estimates"]
    names = list(dict.fromkeys(name for row in rows for name in row["mae"]))
    columns = [
        (size, severity, group)
        for size, severity in ((64, 5), (64, 3), (64, 1), (200, 5))
        for group in (("mixed",), ("Dirichlet(0.3)",), ("sorted",))
    ]
    columns = [key for key in columns if _estimate_rows(rows, *key)]
    values = {
        (name, place, key): statistics.fmean(row["mae"][name][place] for row in _estimate_rows(rows, *key))
        for name in names
        for place in (0, 1)
        for key in columns
    }
    best = {(place, key): min(values[name, place, key] for name in names) for place in (0, 1) for key in columns}

    def text(name: str, key: tuple[int, int, tuple[str, ...]]) -> str:
        return ", ".join(_bold(values[name, place, key], best[place, key]) for place in (0, 1))

    head = ["estimate", *(f"n = {size}, severity {severity}, {orders[0]}" for size, severity, orders in columns)]
    return table(
        head, [[f"`{name}`" if name == "drift" else name, *(text(name, k) for k in columns)] for name in names]
    )


def _estimate_rows(rows: Rows, size: int, severity: int, orders: Sequence[str]) -> Rows:
    return [
        row
        for row in rows
        if (row["size"], row["severity"], row["images"]) == (size, severity, "corrupted") and row["order"] in orders
    ]


def _mean(
    rows: Rows,
    method: str,
    stage: str,
    size: int,
    orders: Sequence[str],
    images: str,
    score: int = 0,
    *,
    severity: int = 5,
    networks: Sequence[str] = PUBLISHED,
) -> float | None:
    """Return a method's mean over networks and orders; None unless all of them were measured."""
    values = {
        (row["network"], row["order"]): row[images][score]
        for row in rows
        if (row["stage"], row["size"], row["severity"], row["method"]) == (stage, size, severity, method)
    }
    keys = [(network, order) for network in networks for order in orders]
    return statistics.fmean(values[key] for key in keys) if all(key in values for key in keys) else None


def _methods_table(rows: Rows, columns: dict[str, Cell]) -> str:
    """Return a table of all methods, with the best value of each column in bold, without empty columns."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    methods = [name for name in methods if name not in OWN] + [name for name in OWN if name in methods]
    values = {(method, head): cell(method) for head, cell in columns.items() for method in methods}
    measured = {head: [value for method in methods if (value := values[method, head]) is not None] for head in columns}
    heads = [head for head in columns if measured[head]]

    def text(method: str, head: str) -> str:
        value = values[method, head]
        return "" if value is None else _bold(value, min(measured[head]))

    lines = [[f"`{name}`" if name in OWN else name, *(text(name, head) for head in heads)] for name in methods]
    return table(["method", *heads], lines)


def _bold(value: float, best: float) -> str:
    """Return a number with three decimals, in bold if it is as good as the best one."""
    text = f"{value:.3f}"
    return f"**{text}**" if text == f"{best:.3f}" else text
