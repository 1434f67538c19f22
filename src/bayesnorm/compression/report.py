"""Measure networks (multiply-adds, loss, error, prediction time), and report a compression."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..metrics import accuracy, rmse
from ..network import Executable, multiply_adds
from ..predictive import ClassificationPredictive, RegressionPredictive
from ..words import ShortRepr

# The number of timed predictions; the median counts.
TIMES = 21


@dataclass(frozen=True)
class Measured:
    """The measurements of one network.

    Args:
        multiply_adds: The multiply-adds of linear and convolutional layers for one example.
        seconds: The median time of a prediction, in seconds.
        loss: The mean of -log p(y | x), in nats; None without targets.
        error: The share of wrong classes, or the root mean squared error; None without targets.
    """

    multiply_adds: int
    seconds: float
    loss: float | None = None
    error: float | None = None


@torch.no_grad()
def measured(
    networks: Sequence[nn.Module], likelihood: Likelihood, output: str | int | None, x: Any, y: Any, batch_size: int
) -> list[Measured]:
    """Return the measurements of several networks on the same examples.

    Predictions of the networks are timed in turns, so that other load on the machine affects all of them.

    Args:
        networks: The networks, in evaluation mode.
        likelihood: The likelihood, which maps outputs to distributions of targets.
        output: The entry of the networks' output that is used.
        x: Inputs.
        y: Their targets, or None.
        batch_size: The number of examples per timed prediction.
    """
    runners = [Executable(network, output) for network in networks]
    rows = runners[0].input(x)
    few = rows[:batch_size]
    measurements = []
    for network, runner, seconds in zip(networks, runners, prediction_seconds(networks, few), strict=True):
        scores = losses(runner, likelihood, rows, y) if y is not None else (None, None)
        measurements.append(Measured(multiply_adds(network, few), seconds, *scores))
    return measurements


@torch.no_grad()
def prediction_seconds(networks: Sequence[nn.Module], x: Tensor) -> list[float]:
    """Return the median time of each network for one batch, timed in turns."""
    times: list[list[float]] = [[] for _ in networks]
    for _ in range(TIMES):
        for network, seconds in zip(networks, times, strict=True):
            _settle(x)
            start = time.perf_counter()
            network(x)
            _settle(x)
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds[1:]) for seconds in times]


def losses(runner: Executable, likelihood: Likelihood, x: Tensor, y: Any, rows: int = 1024) -> tuple[float, float]:
    """Return the mean loss of a network and its error: the share of wrong classes, or the root mean squared error.

    Args:
        runner: The network.
        likelihood: The likelihood that defines the loss.
        x: Inputs.
        y: Their targets.
        rows: The number of examples per forward pass.
    """
    outputs = torch.cat([runner.point(part) for part in x.split(rows)])
    predictive = likelihood.predictive(outputs[None])
    if isinstance(predictive, ClassificationPredictive):
        error = 1 - accuracy(predictive, y)
    elif isinstance(predictive, RegressionPredictive):
        error = rmse(predictive, y)
    else:
        raise BayesNormError(
            f"y cannot be scored: {type(likelihood).__name__} has several targets. Call report without y."
        )
    return -float(predictive.log_prob(y).double().mean()), float(error)


def _settle(x: Tensor) -> None:
    """Wait until the device has finished."""
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)


@dataclass(frozen=True)
class LayerReport:
    """The sizes of one tensor of a network.

    Args:
        name: Its name.
        before: Its shape before compression.
        after: Its shape after compression.
        bits: Bits per value in the file.
    """

    name: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    bits: int


@dataclass(frozen=True, repr=False)
class CompressionReport(ShortRepr):
    """Sizes and bits, and with examples also error and time, before and after; `print` shows a table.

    Args:
        layers: The network's tensors.
        bytes_before: Bytes of all tensors before compression.
        bytes_after: Bytes of all tensors in the file, without its header.
        unremovable: For every reason, the number of units that are noise but could not be removed.
        before: Measurements before compression; None without examples.
        after: Measurements after compression; None without examples.
    """

    layers: list[LayerReport]
    bytes_before: int
    bytes_after: int
    unremovable: dict[str, int]
    before: Measured | None = None
    after: Measured | None = None

    @property
    def parameters_before(self) -> int:
        """The number of parameters, including batch-norm statistics, before compression."""
        return sum(math.prod(layer.before) for layer in self.layers)

    @property
    def parameters_after(self) -> int:
        """The number of parameters, including batch-norm statistics, after compression."""
        return sum(math.prod(layer.after) for layer in self.layers)

    def __str__(self) -> str:
        width = max(len(layer.name) for layer in self.layers)
        lines = [f"{'tensor':{width}}  {'before':>18}  {'after':>18}  bits"]
        for layer in self.layers:
            shapes = ("x".join(map(str, shape)) for shape in (layer.before, layer.after))
            lines.append(f"{layer.name:{width}}  {next(shapes):>18}  {next(shapes):>18}  {layer.bits:4}")
        rows = [
            ("parameters", self.parameters_before, self.parameters_after),
            ("bytes without file header", self.bytes_before, self.bytes_after),
        ]
        if self.before and self.after:
            rows.append(("multiply-adds per example", self.before.multiply_adds, self.after.multiply_adds))
        lines += ["", *(f"{name}: {old:,} -> {new:,} ({old / new:.1f} times fewer)" for name, old, new in rows)]
        if self.before and self.after:
            old, new = self.before, self.after
            lines.append(f"prediction time: {1e3 * old.seconds:.3f} ms -> {1e3 * new.seconds:.3f} ms")
            if old.loss is not None and old.error is not None and new.loss is not None and new.error is not None:
                lines.append(f"loss: {old.loss:.4f} -> {new.loss:.4f}")
                lines.append(f"error: {old.error:.4f} -> {new.error:.4f}")
        lines += [
            f"{count} unit{'s' if count != 1 else ''} of noise could not be removed: {reason}."
            for reason, count in self.unremovable.items()
        ]
        return "\n".join(lines)
