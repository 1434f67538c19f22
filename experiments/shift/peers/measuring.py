"""Measure one unit: the scores of a method on streams, estimates of the error, or times."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

import bayesnorm as bn
from bayesnorm.errors import BayesNormWarning

from ..images import SCORES, scores_of
from ..streams import error
from .estimates import ESTIMATORS, CleanRecord
from .plan import CALIBRATED, ESTIMATES, METHODS, SEQUENCE, TIMES, WARM_UP, Unit
from .sources import Source, load_source
from .streaming import Condition, Streams, conditions, order_streams, sequence_streams

BACK = "back to clean"
OWN = "drift"
"""The package's own estimate of the error."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where everything is.

    Args:
        images: Folder of corrupted images.
        networks: Folder of trained networks and posteriors.
        device: The device.
        test_images: The test images that streams take.
        corruptions: Names of the corruptions.
    """

    images: Path
    networks: Path
    device: str
    test_images: range
    corruptions: tuple[str, ...]


def measure_unit(unit: Unit, place: Place) -> list[Row]:
    """Return the rows of a unit."""
    source = load_source(unit.network, place.networks, place.device)
    if unit.stage == TIMES:
        return _times(unit, source, place)
    where = conditions(unit.severity, place.corruptions[:: unit.every])
    make = sequence_streams if unit.stage == SEQUENCE else order_streams
    streams = make(place.images, where, unit.orders, unit.length, unit.size, place.test_images, place.device)
    if unit.stage == ESTIMATES:
        return _estimates(unit, source, streams, where)
    logits = predictions(unit.method, source, streams, unit.size)
    temperature = 1.0 if unit.method in CALIBRATED else source.temperature
    if unit.stage == SEQUENCE:
        return _sequence_rows(unit, logits, streams, temperature)
    names = [corruption for _ in unit.orders for corruption, _ in where]
    orders = [order for order in unit.orders for _ in where]
    return [
        {"corruption": name, "order": order, **_scores(logits[:, column], streams.labels[:, column], temperature)}
        for column, (name, order) in enumerate(zip(names, orders, strict=True))
    ]


def predictions(method: str, source: Source, streams: Streams, size: int) -> Tensor:
    """Return the logits of all images of all streams, (L, G, K), on the CPU."""
    running = METHODS[method](source, streams.number.shape[1])
    return torch.cat([running.predict(x).float().cpu() for x in streams.batches(size)])


def _scores(logits: Tensor, labels: Tensor, temperature: float) -> dict[str, float]:
    predictive = bn.Categorical().predictive((logits / temperature)[None])
    return {name: round(float(value), 5) for name, value in zip(SCORES, scores_of(predictive, labels), strict=True)}


def _sequence_rows(unit: Unit, logits: Tensor, streams: Streams, temperature: float) -> list[Row]:
    """Return a row for all corrupted parts of each stream, and one for the clean part at its end."""
    rows: list[Row] = []
    for column, order in enumerate(unit.orders):
        for name, part in (("all", slice(0, -unit.length)), (BACK, slice(-unit.length, None))):
            scores = _scores(logits[part, column], streams.labels[part, column], temperature)
            rows.append({"corruption": name, "order": order, **scores})
    return rows


def _estimates(unit: Unit, source: Source, streams: Streams, where: Sequence[Condition]) -> list[Row]:
    """Return a row for each corruption: mean absolute errors of the estimates before and after adapting."""
    clean = _clean_record(source)
    differences: list[dict[str, list[tuple[float, float]]]] = [{} for _ in where]
    truths: list[list[tuple[float, float]]] = [[] for _ in where]
    for number, x in enumerate(streams.batches(unit.size)):
        labels = streams.labels[number * unit.size : (number + 1) * unit.size]
        for column in range(len(where)):
            truth, estimated = _estimate_batch(source, clean, x[:, column], labels[:, column])
            truths[column].append(truth)
            for name, values in estimated.items():
                pair = values[0] - truth[0], values[1] - truth[1]
                differences[column].setdefault(name, []).append(pair)
    rows: list[Row] = []
    for (corruption, _), of_corruption, truth_pairs in zip(where, differences, truths, strict=True):
        row: Row = {"corruption": corruption, "order": unit.orders[0], "batches": len(truth_pairs)}
        row["truth"] = np.mean(truth_pairs, 0).round(5).tolist()
        row["mae"] = {name: np.abs(pairs).mean(0).round(5).tolist() for name, pairs in of_corruption.items()}
        row["bias"] = {name: np.mean(pairs, 0).round(5).tolist() for name, pairs in of_corruption.items()}
        rows.append(row)
    return rows


@torch.no_grad()
def _estimate_batch(
    source: Source, clean: CleanRecord, x: Tensor, y: Tensor
) -> tuple[tuple[float, float], dict[str, tuple[float, float]]]:
    """Return the true errors before and after adapting to a batch, and all estimates of both."""
    posterior = source.posterior
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesNormWarning)
        adapted = bn.adapt(posterior, x)
        drift_estimate = bn.drift(posterior, x).expected_error
    assert drift_estimate is not None
    before = source.network(x)
    after = functional_call(source.network, adapted.state(adapted.location), (x,))
    probs = [(logits / source.temperature).double().softmax(1).cpu().numpy() for logits in (before, after)]
    estimated = {name: (make(probs[0], clean), make(probs[1], clean)) for name, make in ESTIMATORS.items()}
    return (error(before, y), error(after, y)), {
        OWN: (drift_estimate.before.value, drift_estimate.after.value),
        **estimated,
    }


@torch.no_grad()
def _clean_record(source: Source) -> CleanRecord:
    probs = (source.network(source.clean) / source.temperature).double().softmax(1)
    return CleanRecord(probs.cpu().numpy(), source.labels.cpu().numpy())


def _times(unit: Unit, source: Source, place: Place) -> list[Row]:
    """Return a row for each method: the mean time of an image of one stream; on a CPU, of its one thread."""
    clock = time.process_time if place.device == "cpu" else time.perf_counter
    where = conditions(unit.severity, place.corruptions[:1])
    streams = order_streams(place.images, where, unit.orders, unit.length, unit.size, place.test_images, place.device)
    rows: list[Row] = []
    for name, make in METHODS.items():
        running, seconds = make(source, 1), []
        for x in streams.batches(unit.size):
            one = x[:, 1:].contiguous()
            _synchronise(place.device)
            started = clock()
            running.predict(one)
            _synchronise(place.device)
            seconds.append(clock() - started)
        mean = statistics.fmean(seconds[WARM_UP:]) / unit.size
        rows.append({"method": name, "milliseconds per image": round(1000 * mean, 5)})
    return rows


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
