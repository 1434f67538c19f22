"""The base class of batch-norm methods: their arguments, and the collection of batch statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..arguments import hold_plain_numbers, require_seed, require_whole
from ..engines import OutputDirections
from ..errors import BayesNormError, quoted, warn
from ..likelihoods import Likelihood
from ..network import (
    BatchStatistics,
    Executable,
    LayerChoice,
    Progress,
    TrainData,
    UnitMoments,
    check_layers,
    collect_moments,
    collect_statistics,
    mini_batches,
    without_frozen,
)
from ..posterior import (
    BatchNormPosterior,
    Center,
    Fluctuations,
    TrainingBatches,
    collect_class_statistics,
    coordinates,
)
from ..progress import long_progress
from .fitting import P, checked_seed, fitting_likelihood

# Largest number of batches whose statistics are collected; all of them are in memory and in files.
MOST_STATES = 1_000_000

Collected = BatchStatistics | UnitMoments
"""The data of a method: statistics of batches, or moments of single examples."""


@dataclass(frozen=True)
class BatchNormMethod(ABC):
    """Fit a posterior over batch-norm statistics to the statistics of training batches.

    Args:
        batch_size: Examples per batch, M. Use the batch size of training. Default: None, the batch size of a
            `DataLoader`.
        states: Number of batches whose statistics are collected. Default: 256.
        layers: Batch-norm layers to sample: names, a predicate `(name, module) -> bool`, or a number k for the last k
            layers in running order. What comes before the first of them runs once, not once per sample. Default: None,
            all layers.
        center: Sample around the network's running statistics ("running") or around the mean batch statistics
            ("batch", as published). Default: "running".
    """

    batch_size: int | None = None
    states: int = 256
    layers: LayerChoice = None
    center: Center = "running"

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        if self.center not in ("running", "batch"):
            raise BayesNormError(
                'center must be "running" (the network\'s running statistics) or "batch" (as published), got '
                f"{self.center!r}."
            )
        require_whole("states", self.states, 1 if self.center == "batch" else 2)
        if self.states > MOST_STATES:
            raise BayesNormError(f"states must be at most {MOST_STATES:,}, got {quoted(self.states)}.")

    @abstractmethod
    def distribution(self, deviations: Tensor) -> Fluctuations:
        """Return the distribution of a batch's deviation from the mean statistics, given S deviations, (S, 2C)."""

    def fit(
        self,
        model: nn.Module,
        train_data: TrainData,
        likelihood: Likelihood[P] | None = None,
        *,
        output: str | int | None = None,
        forward_kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> BatchNormPosterior[P]:
        """Collect the statistics of `states` random training batches and return the posterior.

        Args:
            model: The trained network. It is never modified.
            train_data: The training data: a `DataLoader`, a `Dataset`, a tensor, an array, a pair (x, y), a dict of
                inputs, or a generator or list of batches. The signature of forward decides which entries are inputs.
                Targets are not used.
            likelihood: How outputs become distributions of targets. Pass `Categorical()` for classification. Default:
                None, `Gaussian()` for a network with one real output.
            output: The entry to use if the network returns several: a name, a position, or a path such as
                "heads.depth". Default: None.
            forward_kwargs: Further arguments of the network's forward, the same in every call. Default: None.
            seed: Seed of the random batches. Default: 0.
            progress: Called with (done, total) after every batch. Default: None, a bar after two seconds.
        """
        seed = checked_seed(seed, likelihood, progress)
        executable = Executable(model, output, forward_kwargs)
        batches = mini_batches(train_data, self.batch_size, self.states, seed, executable.form)
        layers = without_frozen(model, self.layers)
        example = check_layers(model, batches, layers)
        if self.batch_size is None and any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
            warn(
                f"batch_size={batches.batch_size} is that of the DataLoader, but SyncBatchNorm normalises the batches "
                "of all GPUs together. Pass batch_size=, the number of examples on all GPUs."
            )
        likelihood = fitting_likelihood(executable, example, likelihood)
        collect = collect_statistics if self.from_batches else collect_moments
        with long_progress("fit") as tell:
            collected: Collected = collect(model, batches, layers, progress or tell)
        training_batches, class_statistics = _training_batches(collected), None
        if training_batches is not None:
            class_statistics = collect_class_statistics(executable, likelihood, training_batches.layers, batches)
        return BatchNormPosterior(
            executable=executable,
            likelihood=likelihood,
            output_directions=OutputDirections(collected.statistics.example),
            training_batches=training_batches,
            class_statistics=class_statistics,
            **self.learned(collected),
        )

    def require_fitting(self, model: nn.Module, train_data: TrainData, seed: int = 0) -> None:
        """Raise an error if no statistics can be collected from this network or data. It runs two examples."""
        check_layers(model, mini_batches(train_data, self.batch_size, self.states, require_seed(seed)), self.layers)

    @property
    def from_batches(self) -> bool:
        """Whether the method uses statistics of whole batches, rather than moments of single examples."""
        return True

    def learned(self, collected: Collected) -> dict[str, Any]:
        """Return the arguments of `BatchNormPosterior` that describe the layers and their statistics.

        Args:
            collected: The collected statistics, (S, C); there may be further axes before that of channels.
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
        """Return the mean statistics in coordinates, (2C,), and the distribution of deviations from it."""
        statistics = collected.statistics
        batches = coordinates(statistics.mean, statistics.var, statistics.layers)
        batch_mean = batches.double().mean(0).to(batches.dtype)
        return batch_mean, self.distribution(batches - batch_mean)


def _training_batches(collected: Collected) -> TrainingBatches | None:
    """Return how the collected batches, and smaller ones, varied."""
    statistics = collected.batches if isinstance(collected, UnitMoments) else collected
    assert statistics is not None
    batches = {size: coordinates(small[0], small[1], statistics.layers) for size, small in statistics.small.items()}
    batches[statistics.batch_size] = coordinates(statistics.mean, statistics.var, statistics.layers)
    return TrainingBatches.from_statistics(statistics.layers, statistics.rows, batches, statistics.halved)
