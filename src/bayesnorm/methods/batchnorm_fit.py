"""What every batch-norm method does first: check its arguments and collect batch statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from ..errors import BayesNormError
from ..likelihoods import Gaussian, Likelihood
from ..network import (
    BatchStatistics,
    Executable,
    LayerChoice,
    Progress,
    TrainData,
    collect_statistics,
    mini_batches,
)
from ..posterior import require_seed


@dataclass(frozen=True)
class Fitted:
    """The network, what its outputs mean, and its batch statistics."""

    executable: Executable
    likelihood: Likelihood
    statistics: BatchStatistics


def collect(
    model: nn.Module,
    train_data: TrainData,
    likelihood: Likelihood | None,
    output: str | int | None,
    batch_size: int | None,
    states: int,
    layers: LayerChoice,
    seed: int,
    progress: Progress | None,
) -> Fitted:
    """Batch statistics of `states` mini-batches, and the likelihood, by default Gaussian for one real output."""
    batches = mini_batches(train_data, batch_size, states, require_seed(seed))
    statistics = collect_statistics(model, batches, layers, progress)
    executable = Executable(model, output)
    shape = executable.point(statistics.example)[0].shape
    if likelihood is None and shape.numel() != 1:
        raise BayesNormError(
            f"likelihood: none was given and the network has outputs of shape {tuple(shape)} per row; pass "
            "Categorical() for classes, or Gaussian() for several real targets."
        )
    return Fitted(executable, likelihood or Gaussian(), statistics)


def require_center(center: Any) -> None:
    """Refuse anything but the two known centres."""
    if center not in ("running", "batch"):
        raise BayesNormError(
            f'center: {center!r} was given; "running" (the network\'s own statistics) or "batch" (as published) works.'
        )


def require_states(states: Any, least: int) -> None:
    """Refuse a number of batches that leaves no spread."""
    if isinstance(states, bool) or not isinstance(states, int) or states < least:
        raise BayesNormError(f"states: {states!r} was given; a whole number of at least {least} would work.")
