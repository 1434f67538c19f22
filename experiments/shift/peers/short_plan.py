"""A comparison for one CPU core; its size was fixed before any of it was run.

- A sequence is one stream with 128 images of each of all corruptions in turn, and clean images at the end. Methods
  continue from one corruption to the next.
- A stream is of one corruption: 512 images of every fifth corruption, and of clean images.
- Every cell (a network, an order of the images, a batch size) has all of its methods before the next cell begins, so a
  run that is stopped leaves whole cells. The network that nothing was developed on comes first. Severity 5.
- CoTTA runs the network about 40 times per image, so it has one sequence of the smaller network.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..streams import DIRICHLET, MIXED
from .plan import ADAPT, COTTA, ESTIMATES, METHODS, SEQUENCE, STREAMS, TIMES, Lengths, Unit, timed

SHORT = Lengths(images=5000)
ORDERS_FIRST, ORDERS_LAST = (MIXED, DIRICHLET, "sorted"), ("Dirichlet(0.1)", "Dirichlet(1)")
PART, STREAM, EVERY = 128, 512, 5
SEVERITY, SIZE = 5, 64
OTHER_SIZES = (8, 200, 1)
ESTIMATED = ((128, 1), (32, 4))
"""Batch sizes, and the number of batches of each corruption whose error is estimated."""


def short_units(smaller: str, larger: str) -> list[Unit]:
    """Return all units for two networks, the most important ones first."""
    units = _cells(SEQUENCE, larger, ORDERS_FIRST, PART, 1) + _estimates(larger)
    units += _cells(STREAMS, smaller, ORDERS_FIRST, STREAM, EVERY)
    units += [_unit(TIMES, smaller, "all", MIXED, timed(size), size=size) for size in (SIZE, 1)]
    units += _cells(SEQUENCE, smaller, ORDERS_FIRST, PART, 1) + _estimates(smaller)
    units.append(_unit(SEQUENCE, smaller, COTTA, MIXED, PART))
    units += _cells(STREAMS, larger, ORDERS_FIRST, STREAM, EVERY)
    for size in OTHER_SIZES:
        units += _cells(STREAMS, smaller, (MIXED, "sorted"), STREAM if size > SIZE else PART, EVERY, size)
    return units + _cells(SEQUENCE, smaller, ORDERS_LAST, PART, 1)


def _cells(stage: str, network: str, orders: Sequence[str], length: int, every: int, size: int = SIZE) -> list[Unit]:
    """Return a unit for each order and each method except CoTTA."""
    methods = [method for method in METHODS if method != COTTA]
    return [_unit(stage, network, method, order, length, every, size) for order in orders for method in methods]


def _estimates(network: str) -> list[Unit]:
    return [
        _unit(ESTIMATES, network, ADAPT, order, size * batches, size=size)
        for size, batches in ESTIMATED
        for order in ORDERS_FIRST
    ]


def _unit(stage: str, network: str, method: str, order: str, length: int, every: int = 1, size: int = SIZE) -> Unit:
    return Unit(stage, network, method, SEVERITY, (order,), size, length, every)
