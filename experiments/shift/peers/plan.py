"""What is measured, in independent units, the most important ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..streams import DIRICHLET, MIXED, ORDERS
from .cotta import Cotta
from .entropy_methods import Eata, Sar, Tent
from .lame import Lame
from .memory_methods import Note, Rotta
from .methods import Maker, Separately, batch_statistics, blended_statistics, no_adaptation
from .own_methods import AdaptToBatch, Following

NONE, NADO, BLEND, COTTA, ADAPT, STREAM = (
    "no adaptation",
    "BN adaptation",
    "BN blend, N = 16",
    "CoTTA",
    "adapt",
    "AdaptiveStream",
)
METHODS: dict[str, Maker] = {
    NONE: no_adaptation,
    NADO: batch_statistics,
    BLEND: blended_statistics,
    "TENT": Tent,
    "EATA": Eata,
    "SAR": Sar,
    COTTA: partial(Separately, Cotta),
    "RoTTA": Rotta,
    "NOTE": Note,
    "LAME": Lame,
    ADAPT: partial(Separately, AdaptToBatch),
    STREAM: partial(Separately, Following),
}
SEPARATE = (COTTA, ADAPT, STREAM)
"""Methods that run streams one after the other, so that each order is a unit of its own."""
WARM_UP, TIMED_BATCHES, TIMED_IMAGES = 4, 8, 64
"""Times are means over so many batches and images at least, after so many batches."""
SMALL = 8
"""Batches of up to so many images are small."""
CALIBRATED = (STREAM,)
"""Methods whose probabilities have a temperature already."""

# The stages: what is measured.
STANDARD, STREAMS, SEQUENCE, SEVERITIES, ESTIMATES, TIMES = (
    "standard",
    "streams",
    "sequence",
    "severities",
    "estimates",
    "times",
)


@dataclass(frozen=True)
class Unit:
    """One method on some streams of one network.

    Args:
        stage: "standard" (all images of each corruption in random order), "streams", "sequence" (one corruption after
            the other, then clean images), "severities", "estimates" (of the error), or "times".
        network: The network.
        method: One of `METHODS`; for the estimates the package's own.
        severity: The severity of the corruptions.
        orders: Orders of the images, each a stream for every corruption.
        size: Images of a batch.
        length: Images of a stream, or of each part of a sequence.
        every: 1 for all corruptions, 3 for every third one.
    """

    stage: str
    network: str
    method: str
    severity: int
    orders: tuple[str, ...]
    size: int
    length: int
    every: int = 1

    @property
    def name(self) -> str:
        """The unit in words, such as "streams, ResNet-20, adapt, severity 5, n = 64, mixed"."""
        orders = " and ".join(self.orders)
        return f"{self.stage}, {self.network}, {self.method}, severity {self.severity}, n = {self.size}, {orders}"


@dataclass(frozen=True)
class Lengths:
    """How many images streams have.

    Args:
        images: The number of test images.
        first: The streams take test images from this one on. The first 2,000 were used while `adapt` was developed.
        standard: Images of a stream in the standard protocol.
        streams: By batch size, the images of a stream.
        part: Images of each part of a sequence, and of streams of other severities.
        batches: Batches of each stream whose error is estimated.
        corruptions: The number of corruptions; None for all.
        orders: Orders of the streams.
        severities: Severities besides the highest one, the most important first.
    """

    images: int = 10_000
    first: int = 2000
    standard: int = 8000
    streams: tuple[tuple[int, int], ...] = ((64, 2000), (200, 2000), (8, 1000), (1, 250))
    part: int = 1000
    batches: int = 8
    corruptions: int | None = None
    orders: tuple[str, ...] = ORDERS
    severities: tuple[int, ...] = (3, 1, 2, 4)


LENGTHS = {
    "paper": Lengths(),
    "quick": Lengths(
        images=1200,
        first=1000,
        standard=32,
        streams=((16, 32),),
        part=16,
        batches=1,
        corruptions=1,
        orders=(MIXED, "sorted"),
        severities=(),
    ),
}


def planned_units(published: Sequence[str], trained: Sequence[str], lengths: Lengths) -> list[Unit]:
    """Return all units.

    Args:
        published: The networks that everything is measured with.
        trained: Further ones, for the most important stages only.
        lengths: How many images streams have.
    """
    by_size = dict(lengths.streams)
    middle, *larger = sorted(size for size in by_size if size > SMALL)
    largest = max(by_size)
    sizes = sorted(size for size in by_size if not 1 < size <= SMALL)
    units = [Unit(TIMES, published[-1], "all", 5, (MIXED,), size, timed(size)) for size in sizes]
    orders, others = lengths.orders, lengths.severities
    some = tuple(order for order in orders if order in (MIXED, DIRICHLET, "sorted"))
    for networks, their_orders, without in ((published, orders, ()), (trained, some, (COTTA,))):
        units += _each_method(STANDARD, networks, 5, (MIXED,), largest, lengths.standard, without=without)
        units += _each_method(STREAMS, networks, 5, their_orders, middle, by_size[middle], without=without)
    units += _estimates((*published, *trained), (5, *others[:1]), middle, lengths)
    for size in larger:
        units += _each_method(STREAMS, published, 5, orders, size, by_size[size], without=(COTTA,))
        units += _estimates(published, (5,), size, lengths)
    units += _each_method(SEQUENCE, published, 5, orders, middle, lengths.part, together=True)
    for size in sorted((size for size in by_size if size <= SMALL), reverse=True):
        units += _each_method(STREAMS, published, 5, orders, size, by_size[size], together=True, without=(COTTA,))
    for severity in others:
        units += _each_method(SEVERITIES, published, severity, some, middle, lengths.part, without=(COTTA,))
    return units + _estimates(published, others[1:2], middle, lengths)


def timed(size: int) -> int:
    """Return the images of a stream whose time is measured."""
    return size * (WARM_UP + max(TIMED_BATCHES, -(-TIMED_IMAGES // size)))


def _each_method(
    stage: str,
    networks: Sequence[str],
    severity: int,
    orders: tuple[str, ...],
    size: int,
    length: int,
    *,
    together: bool = False,
    without: Sequence[str] = (),
) -> list[Unit]:
    """Return a unit for every network, method and order; one for all orders of small batches, if possible."""
    return [
        Unit(stage, network, method, severity, part, size, length)
        for method in sorted(METHODS, key=lambda name: (name in SEPARATE, name == COTTA))  # the slowest ones last
        for network in networks
        if method not in without
        for part in ((orders,) if together and method not in SEPARATE else ((order,) for order in orders))
    ]


def _estimates(networks: Sequence[str], severities: tuple[int, ...], size: int, lengths: Lengths) -> list[Unit]:
    return [
        Unit(ESTIMATES, network, ADAPT, severity, (order,), size, lengths.batches * size)
        for severity in severities
        for network in networks
        for order in lengths.orders
    ]
