"""Measure networks on rows: multiply-adds, loss, error, and the time that a prediction takes."""

from __future__ import annotations

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

# Predictions whose median time counts.
TIMES = 21


@dataclass(frozen=True)
class Measured:
    """What was measured of one network.

    Args:
        multiply_adds: Those of linear and convolutional layers for one row.
        seconds: The median time of a prediction.
        loss: The mean of -log p(y | x); None without targets.
        error: The share of wrong classes, or the root of the mean squared error; None without targets.
    """

    multiply_adds: int
    seconds: float
    loss: float | None = None
    error: float | None = None


@torch.no_grad()
def measured(
    networks: Sequence[nn.Module], likelihood: Likelihood, output: str | int | None, x: Any, y: Any, batch_size: int
) -> list[Measured]:
    """Measure some networks on the same rows; their predictions are timed in turns, so that a busy machine is fair.

    Args:
        networks: The networks, in evaluation mode.
        likelihood: Turns outputs into distributions of targets.
        output: Which entry of the networks' outputs is used.
        x: Rows.
        y: Their targets, or None.
        batch_size: Rows of the predictions whose time is taken.
    """
    runners = [Executable(network, output) for network in networks]
    rows = runners[0].input(x)
    few = rows[:batch_size]
    found = []
    for network, runner, seconds in zip(networks, runners, prediction_seconds(networks, few), strict=True):
        scores = losses(runner, likelihood, rows, y) if y is not None else (None, None)
        found.append(Measured(multiply_adds(network, few), seconds, *scores))
    return found


@torch.no_grad()
def prediction_seconds(networks: Sequence[nn.Module], x: Tensor) -> list[float]:
    """Return the median time that each network takes for some rows, taken in turns."""
    times: list[list[float]] = [[] for _ in networks]
    for _ in range(TIMES):
        for network, own in zip(networks, times, strict=True):
            _settle(x)
            start = time.perf_counter()
            network(x)
            _settle(x)
            own.append(time.perf_counter() - start)
    return [statistics.median(own[1:]) for own in times]


def losses(runner: Executable, likelihood: Likelihood, x: Tensor, y: Any, rows: int = 1024) -> tuple[float, float]:
    """Return the mean loss of a network, and its error: of classes the share of wrong ones, else the root mean square.

    Args:
        runner: The network.
        likelihood: What the loss is from.
        x: Rows.
        y: Their targets.
        rows: How many are run at once.
    """
    outputs = torch.cat([runner.point(part) for part in x.split(rows)])
    predictive = likelihood.predictive(outputs[None])
    if isinstance(predictive, ClassificationPredictive):
        error = 1 - accuracy(predictive, y)
    elif isinstance(predictive, RegressionPredictive):
        error = rmse(predictive, y)
    else:
        raise BayesNormError(
            f"y: targets of {type(likelihood).__name__} are several; a report without them would work."
        )
    return -float(predictive.log_prob(y).double().mean()), float(error)


def _settle(x: Tensor) -> None:
    """Wait until a device has done its work."""
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
