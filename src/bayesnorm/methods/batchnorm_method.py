"""What the batch-norm methods share: their arguments, and collecting batch statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..arguments import hold_plain_numbers, require_function, require_seed, require_whole
from ..engines import OutputDirections
from ..errors import BayesNormError
from ..likelihoods import Likelihood, require_likelihood
from ..network import (
    BatchStatistics,
    Executable,
    LayerChoice,
    Progress,
    TrainData,
    UnitMoments,
    collect_moments,
    collect_statistics,
    mini_batches,
    require_layers,
)
from ..posterior import BatchNormPosterior, Center, Fluctuations, TrainingBatches, coordinates
from .looking import fitting_likelihood

Collected = BatchStatistics | UnitMoments
"""What a method learns from: statistics of batches, or moments of single rows."""


@dataclass(frozen=True)
class BatchNormMethod(ABC):
    """A posterior over batch-norm statistics from those of training batches.

    Args:
        batch_size: M, rows per batch; None takes a `DataLoader`'s own.
        states: S, how many batches' statistics are collected.
        layers: Which batch-norm layers are drawn: names, a predicate `(name, module) -> bool`, the last k as they run,
            or None for all. What comes before the first of them is computed once, not once per draw.
        center: "running" (samples about the network's own running statistics) or "batch" (as published).
    """

    batch_size: int | None = None
    states: int = 256
    layers: LayerChoice = None
    center: Center = "running"

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        if self.center not in ("running", "batch"):
            raise BayesNormError(
                f'center: {self.center!r} was given; "running" (about the network\'s own statistics) or "batch" (as '
                "published) would work."
            )
        require_whole("states", self.states, 1 if self.center == "batch" else 2)

    @abstractmethod
    def distribution(self, deviations: Tensor) -> Fluctuations:
        """The distribution of a batch's deviation from the mean statistics, from those of S batches, (S, 2C)."""

    def fit(
        self,
        model: nn.Module,
        train_data: TrainData,
        likelihood: Likelihood | None = None,
        *,
        output: str | int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> BatchNormPosterior:
        """Collect the statistics of `states` training batches.

        Args:
            model: The trained network; never modified.
            train_data: The rows that it was trained on: a `DataLoader`, a `Dataset`, a tensor, an array or a pair.
            likelihood: How outputs become distributions of targets; None means `Gaussian()` for a network with one
                real output, and classification wants `Categorical()`.
            output: Which entry to use where the network returns a dict or a tuple.
            seed: Same seed, same batches.
            progress: Called with (done, total) after every batch.
        """
        if likelihood is not None:
            require_likelihood(likelihood)
        require_function("progress", progress)
        batches = mini_batches(train_data, self.batch_size, self.states, require_seed(seed))
        collect = collect_statistics if self.from_batches else collect_moments
        found: dict[str, Any] = {}

        def look(rows: Tensor) -> None:
            executable = Executable(model, output)
            found.update(executable=executable, likelihood=fitting_likelihood(executable, rows, likelihood))

        collected: Collected = collect(model, batches, self.layers, progress, look)
        return BatchNormPosterior(
            output_directions=OutputDirections(collected.statistics.example),
            training_batches=_training_batches(collected),
            **found,
            **self.learned(collected),
        )

    def require_fitting(self, model: nn.Module, train_data: TrainData, seed: int = 0) -> None:
        """Refuse a network, or rows, that no statistics can be taken of; two rows are run."""
        require_layers(model, mini_batches(train_data, self.batch_size, self.states, require_seed(seed)), self.layers)

    @property
    def from_batches(self) -> bool:
        """Whether the method starts from the statistics of whole batches; else from the moments of single rows."""
        return True

    def learned(self, collected: Collected) -> dict[str, Any]:
        """Return what `BatchNormPosterior` holds of the layers and their statistics.

        Args:
            collected: What was collected, (S, C) or, for the networks of a stack, (S, E, C).
        """
        statistics = collected.statistics
        batch_mean, fluctuations = self.summarised(collected)
        return {
            "method": type(self).__name__,
            "layers": statistics.layers,
            "center": self.center,
            "running": coordinates(statistics.running_mean, statistics.running_var, statistics.layers),
            "batch_mean": batch_mean,
            "fluctuations": fluctuations,
            "fitted_batch_size": statistics.batch_size,
            "batch_size": float(statistics.batch_size),
            "rows": statistics.rows,
        }

    def summarised(self, collected: Collected) -> tuple[Tensor, Fluctuations]:
        """Return the mean of the statistics in coordinates, (2C,), and the distribution of deviations from it."""
        statistics = collected.statistics
        found = coordinates(statistics.mean, statistics.var, statistics.layers)
        batch_mean = found.double().mean(0).to(found.dtype)
        return batch_mean, self.distribution(found - batch_mean)


def _training_batches(collected: Collected) -> TrainingBatches | None:
    """Return how the batches varied that a posterior was learned from, and the smaller ones beside them."""
    statistics = collected.batches if isinstance(collected, UnitMoments) else collected
    assert statistics is not None
    found = {size: coordinates(small[0], small[1], statistics.layers) for size, small in statistics.small.items()}
    found[statistics.batch_size] = coordinates(statistics.mean, statistics.var, statistics.layers)
    return TrainingBatches.of(statistics.layers, statistics.rows, found, statistics.halved)
