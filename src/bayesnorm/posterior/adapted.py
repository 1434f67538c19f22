"""A posterior over batch-norm statistics that new rows have moved.

The model. For a coordinate (a mean or a log-variance of one channel) n new rows show a shift delta from what as many
training rows show on average, with delta ~ N(theta, s^2) and s^2 known from training batches. The true shifts theta of
one layer's means, and of its log-variances, have a scale t of their own: theta ~ N(0, t^2 s^2). Given delta,

    theta ~ N(w delta, w s^2),     w = t^2 / (1 + t^2).

The location of the posterior moves by w delta; w s^2, what n rows leave uncertain about the new statistics, is added to
the variance of its fluctuations. `shift.adapt` says how w is found.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..engines import OutputDirections
from ..files import under
from ..likelihoods import Likelihood
from ..network import BatchNormLayer, Executable, LayerChoice
from ..schema import Array, record, refuse, whole
from .batchnorm import BatchNormPosterior, coordinates
from .fluctuations import Fluctuations
from .training_batches import TrainingBatches


@dataclass(frozen=True)
class Adaptation:
    """What new rows say about the statistics of all watched layers; 2C coordinates, 2L parts, see `TrainingBatches`.

    Args:
        rows: n, how many rows it comes from.
        shift: By how much their statistics lie off those of as many training rows, (2C,), double.
        noise: The variance that this has for training rows, (2C,), double.
        strength: w, which share of the shift is believed, (2L,), double.
    """

    rows: int
    shift: Tensor
    noise: Tensor
    strength: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Return what is saved as tensors."""
        return {"shift": self.shift, "noise": self.noise, "strength": self.strength}


@dataclass(frozen=True)
class LayerMove:
    """How far one layer's statistics were moved.

    Args:
        name: The layer's name in the network.
        mean_shift: How far its means moved, in standard deviations of what they are in training; root mean square over
            channels.
        spread_ratio: How much larger its standard deviations became; geometric mean over channels.
        strength: Which share of the shift of its means, and of its log-variances, was believed.
    """

    name: str
    mean_shift: float
    spread_ratio: float
    strength: tuple[float, float]


@dataclass(frozen=True, eq=False)
class AdaptedPosterior(BatchNormPosterior):
    """A posterior whose location was moved by new rows, and whose fluctuations hold what they leave uncertain.

    The statistics of all watched layers are overridden; those that the original does not draw have no fluctuations.

    Args:
        original: The posterior as it was.
        adaptation: What moved it.
        moved: By how much the location was moved, (2C,).
    """

    kind: ClassVar[str] = "adapted"
    schema = record(original=BatchNormPosterior.schema, adapted_to=whole(1))

    original: BatchNormPosterior = dataclasses.field(default=None, repr=False)  # type: ignore[assignment]
    adaptation: Adaptation = dataclasses.field(default=None, repr=False)  # type: ignore[assignment]
    moved: Tensor = dataclasses.field(default=None, repr=False)  # type: ignore[assignment]

    @property
    def location(self) -> Tensor:
        return super().location + self.moved

    @property
    def moves(self) -> tuple[LayerMove, ...]:
        """How far every layer was moved, in running order."""
        sizes = [layer.channels for layer in self.layers]
        log_var = self.batch_mean.double().chunk(2)[1].split(sizes)
        by_mean, by_log_var = (part.double().split(sizes) for part in self.moved.chunk(2))
        of_means, of_log_vars = self.adaptation.strength.chunk(2)
        return tuple(
            LayerMove(
                layer.name,
                float((by_mean[i].square() / log_var[i].exp()).mean().sqrt()),
                math.exp(0.5 * float(by_log_var[i].mean())),
                (float(of_means[i]), float(of_log_vars[i])),
            )
            for i, layer in enumerate(self.layers)
        )

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the posterior whose original has another effective batch size, moved by the same rows."""
        return self._with_original(self.original.at_batch_size(batch_size))

    def at_layers(self, layers: LayerChoice) -> Self:
        """Return the posterior that samples only some layers; the others keep the statistics that they were moved to."""
        return self._with_original(self.original.at_layers(layers))

    def with_likelihood(self, likelihood: Likelihood) -> Self:
        return dataclasses.replace(self, likelihood=likelihood, original=self.original.with_likelihood(likelihood))

    def tensors(self) -> dict[str, Tensor]:
        own = {f"adaptation.{name}": tensor for name, tensor in self.adaptation.tensors().items()}
        return own | {f"original.{name}": tensor for name, tensor in self.original.tensors().items()}

    def config(self) -> dict[str, Any]:
        return {"original": self.original.config(), "adapted_to": self.adaptation.rows}

    @classmethod
    def arrays(cls, model: nn.Module, config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        batches = config["original"].get("training_batches")
        if batches is None:
            refuse("posterior.original.training_batches", None, "what the fit saw of training batches")
        original = BatchNormPosterior.arrays(model, config["original"], under("original.", tensors))
        width, double = 2 * sum(layer["channels"] for layer in batches["layers"]), (torch.float64,)
        own = {"shift": Array((width,), double), "noise": Array((width,), double, 0.0)}
        own["strength"] = Array((2 * len(batches["layers"]),), double, 0.0)
        return {f"original.{name}": array for name, array in original.items()} | {
            f"adaptation.{name}": array for name, array in own.items()
        }

    @classmethod
    def restored(
        cls, executable: Executable, likelihood: Likelihood, tensors: dict[str, Tensor], config: dict[str, Any]
    ) -> Self:
        original = BatchNormPosterior.restored(executable, likelihood, under("original.", tensors), config["original"])
        own = {name: tensor.cpu() for name, tensor in under("adaptation.", tensors).items()}
        found = cls.of(original, Adaptation(config["adapted_to"], **own))
        found._require_finite_samples()
        return found

    @classmethod
    def of(cls, original: BatchNormPosterior, adaptation: Adaptation) -> Self:
        """Return the posterior that an adaptation makes of another."""
        batches = original.training_batches
        assert batches is not None
        running, batch_mean, fluctuations = _of_all_layers(original, batches)
        strength = batches.parts.spread(adaptation.strength)
        own = batches.variance.double() * (original.fitted_batch_size / original.batch_size)
        factor = (1 + strength * adaptation.noise / own).sqrt()
        return cls(
            executable=original.executable,
            likelihood=original.likelihood,
            method=original.method,
            layers=batches.layers,
            center=original.center,
            running=running,
            batch_mean=batch_mean,
            fluctuations=fluctuations.scaled(factor.to(running)),
            fitted_batch_size=original.fitted_batch_size,
            batch_size=original.batch_size,
            rows=original.rows,
            output_directions=OutputDirections(original.output_directions.rows),
            training_batches=batches,
            original=original,
            adaptation=adaptation,
            moved=(strength * adaptation.shift).to(running),
        )

    def _with_original(self, original: BatchNormPosterior) -> Self:
        return type(self).of(original, self.adaptation)


def coordinates_of(layers: tuple[BatchNormLayer, ...], names: set[str]) -> Tensor:
    """Return 1 for the coordinates of the layers with these names and 0 for the others, (2C,)."""
    inside = torch.cat([torch.full((layer.channels,), float(layer.name in names)) for layer in layers])
    return torch.cat([inside, inside])


def _of_all_layers(original: BatchNormPosterior, batches: TrainingBatches) -> tuple[Tensor, Tensor, Fluctuations]:
    """Return running statistics, batch means and fluctuations of all watched layers, also of those not drawn."""
    if original.layers == batches.layers:
        return original.running, original.batch_mean, original.fluctuations
    inside = coordinates_of(batches.layers, {layer.name for layer in original.layers})
    columns = inside.nonzero().squeeze(1).to(original.running.device)
    buffers = dict(original.model.named_buffers())
    mean, var = (
        torch.cat([buffers[f"{layer.name}.{kind}"] for layer in batches.layers])
        for kind in ("running_mean", "running_var")
    )
    running = coordinates(mean.double(), var.double(), batches.layers).to(original.running)
    batch_mean = running.clone()
    running[columns], batch_mean[columns] = original.running, original.batch_mean
    return running, batch_mean, original.fluctuations.placed(columns, len(running))
