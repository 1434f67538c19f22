"""A posterior over batch-norm statistics that was adapted to new data.

The model. A coordinate is a mean or a log-variance of one channel. n new examples show a shift delta from the average
of n training examples, with delta ~ N(theta, s^2) and s^2 known from training batches. The true shifts theta of one
layer's means, and those of its log-variances, share a scale t: theta ~ N(0, t^2 s^2). Given delta,

    theta ~ N(w delta, w s^2),     w = t^2 / (1 + t^2).

The location of the posterior moves by w delta. The remaining uncertainty about the new statistics, w s^2, is added to
the variance of its fluctuations. `shift.adapt` describes how w is estimated.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bayesnorm_runtime import Shift

from ..engines import OutputDirections
from ..files import prefixed, under
from ..likelihoods import Likelihood
from ..network import Executable, LayerChoice
from ..predictive import P_co
from ..schema import Array, later, record, refuse, text, whole
from ..words import ShortRepr
from .base import Config, Move, Tensors
from .batchnorm import BatchNormPosterior, layer_columns, running_coordinates
from .fluctuations import Fluctuations
from .training_batches import TrainingBatches


@dataclass(frozen=True, repr=False)
class Adaptation(ShortRepr):
    """The shift that new examples show in all recorded layers; 2C coordinates, 2L parts, see `TrainingBatches`.

    Args:
        rows: Number of new examples, n.
        shift: Difference of their statistics from those of n training examples, (2C,), double.
        noise: Variance of this difference for training examples, (2C,), double.
        strength: The share w of the shift that is applied, (2L,), double.
        reference: The means that the classes of the new examples explain, (C,), double. A changed spread stretches the
            distances from them. None: from the posterior's own means.
    """

    rows: int
    shift: Tensor
    noise: Tensor
    strength: Tensor
    reference: Tensor | None = None

    @classmethod
    def from_shift(cls, shift: Shift) -> Self:
        """Return the same numbers as tensors."""
        reference = None if shift.reference is None else torch.from_numpy(shift.reference)
        total, noise, strength = map(torch.from_numpy, (shift.shift, shift.noise, shift.strength))
        return cls(shift.rows, total, noise, strength, reference)

    @cached_property
    def arrays(self) -> Shift:
        """The same numbers as arrays, with the arithmetic on them."""
        reference = None if self.reference is None else self.reference.numpy()
        return Shift(self.rows, self.shift.numpy(), self.noise.numpy(), self.strength.numpy(), reference)

    def tensors(self) -> Tensors:
        """Return the tensors to save."""
        tensors = {"shift": self.shift, "noise": self.noise, "strength": self.strength}
        return tensors if self.reference is None else tensors | {"reference": self.reference}


@dataclass(frozen=True)
class LayerMove:
    """How far the statistics of one layer were moved.

    Args:
        name: The layer's name in the network.
        mean_shift: Shift of its means in standard deviations of training; root mean square over channels.
        spread_ratio: Factor of its standard deviations; geometric mean over channels.
        strength: The share of the shift that was applied, for its means and for its log-variances.
    """

    name: str
    mean_shift: float
    spread_ratio: float
    strength: tuple[float, float]


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedPosterior(BatchNormPosterior[P_co]):
    """A posterior whose location was moved to new data, and whose fluctuations include the uncertainty of this move.

    The statistics of all recorded layers are overridden. Layers that the original does not sample have no fluctuations.

    Args:
        original: The posterior before adaptation.
        adaptation: The shift that was applied.
        moved: The change of the location, (2C,).
        decision: Whether and why the statistics were moved, for a classifier; empty for other networks.
    """

    kind: ClassVar[str] = "adapted"
    schema = record(original=BatchNormPosterior.schema, adapted_to=whole(1), decision=later(text))

    original: BatchNormPosterior[P_co] = dataclasses.field(default=None, repr=False)  # type: ignore[arg-type]
    adaptation: Adaptation = dataclasses.field(default=None, repr=False)  # type: ignore[assignment]
    moved: Tensor = dataclasses.field(default=None, repr=False)  # type: ignore[assignment]
    decision: str = dataclasses.field(default="", repr=False)

    @property
    def location(self) -> Tensor:
        return super().location + self.moved

    @property
    def moves(self) -> tuple[LayerMove, ...]:
        """The move of every layer, in running order."""
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
        """Return the adapted posterior with another effective batch size of the original."""
        return self._with_original(self.original.at_batch_size(batch_size))

    def at_layers(self, layers: LayerChoice) -> Self:
        """Return the posterior that samples only some layers. The others keep their adapted statistics."""
        return self._with_original(self.original.at_layers(layers))

    def with_likelihood(self, likelihood: Likelihood[Any]) -> Self:
        return dataclasses.replace(self, likelihood=likelihood, original=self.original.with_likelihood(likelihood))

    def over(self, move: Move) -> Self:
        return self._with_original(self.original.over(move))

    def tensors(self) -> Tensors:
        adaptation, original = self.adaptation.tensors(), self.original.tensors()
        return prefixed("adaptation.", adaptation) | prefixed("original.", original)

    def config(self) -> Config:
        return {"original": self.original.config(), "adapted_to": self.adaptation.rows, "decision": self.decision}

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        batches = config["original"].get("training_batches")
        if batches is None:
            refuse("posterior.original.training_batches", None, "the description of the training batches")
        original = BatchNormPosterior.arrays(model, config["original"], under("original.", tensors))
        width, double = 2 * sum(layer["channels"] for layer in batches["layers"]), (torch.float64,)
        arrays = {"shift": Array((width,), double), "noise": Array((width,), double, 0.0)}
        arrays["strength"] = Array((2 * len(batches["layers"]),), double, 0.0)
        if "adaptation.reference" in tensors:
            arrays["reference"] = Array((width // 2,), double)
        return prefixed("original.", original) | prefixed("adaptation.", arrays)

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        original = BatchNormPosterior.restored(executable, likelihood, under("original.", tensors), config["original"])
        adaptation = {name: tensor.cpu() for name, tensor in under("adaptation.", tensors).items()}
        changes = Adaptation(config["adapted_to"], **adaptation)
        posterior = cls.from_original(original, changes, config.get("decision", ""))
        posterior._require_finite_samples()
        return posterior

    @classmethod
    def from_original(cls, original: BatchNormPosterior[Any], adaptation: Adaptation, decision: str = "") -> Self:
        """Return the original posterior after an adaptation."""
        batches = original.training_batches
        assert batches is not None
        running, batch_mean, fluctuations = in_all_layers(original, batches)
        shift, center = adaptation.arrays, None
        if shift.reference is not None:
            center = (running if original.center == "running" else batch_mean).double().cpu().numpy()
        factor = torch.from_numpy(shift.widening(batches.reference, original.spread**2))
        moved = torch.from_numpy(shift.moved(batches.reference, center))
        fields = {field.name: getattr(original, field.name) for field in dataclasses.fields(BatchNormPosterior)}
        changed: dict[str, Any] = {
            "layers": batches.layers,
            "running": running,
            "batch_mean": batch_mean,
            "fluctuations": fluctuations.scaled(factor.to(running)),
            "output_directions": OutputDirections(original.output_directions.rows),
        }
        return cls(
            **fields | changed, original=original, adaptation=adaptation, moved=moved.to(running), decision=decision
        )

    def _with_original(self, original: BatchNormPosterior[Any]) -> Self:
        return type(self).from_original(original, self.adaptation, self.decision)


def in_all_layers(original: BatchNormPosterior, batches: TrainingBatches) -> tuple[Tensor, Tensor, Fluctuations]:
    """Return running statistics, batch means and fluctuations of all recorded layers, including those not sampled."""
    if original.layers == batches.layers:
        return original.running, original.batch_mean, original.fluctuations
    columns = layer_columns(batches.layers, {layer.name for layer in original.layers}).to(original.running.device)
    running = running_coordinates(original.model, batches.layers).to(original.running)
    batch_mean = running.clone()
    running[columns], batch_mean[columns] = original.running, original.batch_mean
    return running, batch_mean, original.fluctuations.placed(columns, len(running))
