"""The posterior of all batch-norm methods: a location, and fluctuations around it.

A sample overrides the running statistics of the chosen layers. Its coordinates may be any real numbers: the means, and
log(variance + eps) for the variances, because a layer divides by sqrt(variance + eps). The variance of batch statistics
is proportional to 1/M, where M is the batch size. So the posterior with effective batch size M' has the same
fluctuations times sqrt(M / M').
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from bayesnorm_runtime import Validation

from ..arguments import require_positive, require_seed, require_whole
from ..engines import OutputDirections
from ..errors import warn
from ..files import prefixed, under
from ..likelihoods import Likelihood
from ..network import (
    BatchNormLayer,
    CompiledExecutable,
    Executable,
    LayerChoice,
    State,
    choose_layers,
    find_batchnorm,
)
from ..predictive import P_co
from ..schema import Array, later, number, one_of, optional, record, refuse, text, whole
from .base import Config, Move, Posterior, Tensors
from .class_statistics import VALIDATION, ClassStatistics
from .fluctuations import FLUCTUATIONS, Fluctuations
from .training_batches import LAYERS, SCHEMA, TrainingBatches

Center = Literal["running", "batch"]

# Number of samples that are checked when a posterior is loaded.
SAMPLES_CHECKED = 64
# Sampled variances plus eps are at least this multiple of eps, so that rounding cannot make them negative.
LEAST_VARIANCE = 2**-10
# Logarithms of variances so far below that of the least one come from absurd effective batch sizes, which are refused.
ABSURD_LOG_RATIO = -30.0


@dataclass(frozen=True, eq=False, repr=False)
class BatchNormPosterior(Posterior[P_co]):
    """A distribution over batch-norm statistics. All layers together have C channels, hence 2C coordinates.

    Args:
        method: Name of the method that made it.
        layers: The layers whose statistics are sampled, in running order.
        center: "running": samples lie around the network's running statistics, so the deployed network is the centre
            of its posterior. "batch": samples lie around the mean batch statistics, as published.
        running: The network's running statistics in coordinates, (2C,).
        batch_mean: The mean of the batch statistics in coordinates, (2C,).
        fluctuations: Distribution of a batch's deviation from that mean, at `fitted_batch_size`.
        fitted_batch_size: The batch size M that the fluctuations were measured at.
        batch_size: The effective batch size M' of the samples.
        rows: Number of training examples.
        output_directions: Directions for `SigmaPoints`, computed at first use and shared by posteriors with the same
            fluctuations.
        training_batches: How training batches of several sizes vary, to compare new data with them.
        class_statistics: The statistics of single classes in the same layers; None unless each example has one class.
        validation: The error of the network on the validation data of `calibrate`; None for regression or without it.
    """

    kind: ClassVar[str] = "batchnorm"
    schema = record(
        method=text,
        layers=LAYERS,
        center=one_of("running", "batch"),
        fluctuations=one_of(*FLUCTUATIONS),
        fitted_batch_size=whole(1),
        batch_size=number(above=0),
        rows=whole(1),
        training_batches=later(optional(SCHEMA)),
        classes=later(optional(whole(2))),
        validation=later(optional(VALIDATION)),
    )

    method: str
    layers: tuple[BatchNormLayer, ...]
    center: Center
    running: Tensor = dataclasses.field(repr=False)
    batch_mean: Tensor = dataclasses.field(repr=False)
    fluctuations: Fluctuations = dataclasses.field(repr=False)
    fitted_batch_size: int
    batch_size: float
    rows: int
    output_directions: OutputDirections = dataclasses.field(default_factory=OutputDirections, repr=False)
    training_batches: TrainingBatches | None = dataclasses.field(default=None, repr=False)
    class_statistics: ClassStatistics | None = dataclasses.field(default=None, repr=False)
    validation: Validation | None = dataclasses.field(default=None, repr=False)

    @property
    def location(self) -> Tensor:
        """The centre of the samples in coordinates, (2C,)."""
        return self.running if self.center == "running" else self.batch_mean

    @property
    def spread(self) -> float:
        """The factor of the fluctuations for the effective batch size, sqrt(M / M')."""
        return math.sqrt(self.fitted_batch_size / self.batch_size)

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset(f"{layer.name}.running_{kind}" for layer in self.layers for kind in ("mean", "var"))

    def sample(self, n: int, seed: int = 0) -> State:
        generator = torch.Generator().manual_seed(require_seed(seed))
        return self.state(self.location + self.spread * self.fluctuations.sample(require_whole("n", n), generator))

    def compile(self, *, dtype: torch.dtype | None = None, tf32: bool = True, mode: str = "reduce-overhead") -> Self:
        executable = CompiledExecutable(
            *(self.model, self.executable.output),
            dtype=dtype,
            tf32=tf32,
            mode=mode,
            forward_kwargs=self.executable.forward_kwargs,
        )
        return dataclasses.replace(self, executable=executable)

    def state(self, coordinates: Tensor) -> State:
        """Return running statistics by buffer name, given coordinates (..., 2C)."""
        mean, log_var = coordinates.to(self.executable.device).chunk(2, dim=-1)
        sizes = [layer.channels for layer in self.layers]
        state: State = {}
        for layer, m, v in zip(self.layers, mean.split(sizes, -1), log_var.split(sizes, -1), strict=True):
            least = max(LEAST_VARIANCE * layer.eps, torch.finfo(v.dtype).tiny)
            state[f"{layer.name}.running_mean"] = m
            absurd = v < math.log(least) + ABSURD_LOG_RATIO
            state[f"{layer.name}.running_var"] = v.exp().clamp_min(least).masked_fill(absurd, math.nan) - layer.eps
        return state

    def directions(self, rank: int) -> Tensor:
        """Return `rank` deviations that approximate the covariance of all fluctuations, (rank, 2C)."""
        return self.output_directions.deviations(self, rank)

    def with_directions(self, rows: Any) -> Self:
        """Return the posterior with new directions for `SigmaPoints`, computed from a few dozen training inputs."""
        posterior = dataclasses.replace(self, output_directions=OutputDirections(self.executable.input(rows, "rows")))
        posterior.output_directions.find(posterior)
        return posterior

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the posterior with another effective batch size M': the same fluctuations times sqrt(M / M').

        A smaller M' means more epistemic uncertainty.
        """
        return dataclasses.replace(self, batch_size=require_positive("batch_size", batch_size))

    def at_layers(self, layers: LayerChoice) -> Self:
        """Return the posterior that samples only some of its layers; the others keep the network's running statistics.

        The sampled statistics are still those of batches that all layers normalised. Fitting with `layers=` instead
        collects them with the other layers in evaluation mode, where more of the batch variation reaches later layers.
        """
        chosen = set(choose_layers(self.model, [layer.name for layer in self.layers], layers))
        columns = layer_columns(self.layers, chosen).to(self.running.device)
        return dataclasses.replace(
            self,
            layers=tuple(layer for layer in self.layers if layer.name in chosen),
            running=self.running[columns],
            batch_mean=self.batch_mean[columns],
            fluctuations=self.fluctuations.columns(columns),
            output_directions=OutputDirections(self.output_directions.rows),
        )

    def over(self, move: Move) -> Self:
        executable = move(self.executable)
        return dataclasses.replace(
            self,
            executable=executable,
            running=self.running.to(executable.device),
            batch_mean=self.batch_mean.to(executable.device),
            fluctuations=self.fluctuations.to(executable.device),
            output_directions=self.output_directions.over(executable),
        )

    def tensors(self) -> Tensors:
        tensors = {"running": self.running, "batch_mean": self.batch_mean}
        tensors |= prefixed("fluctuations.", self.fluctuations.tensors())
        directions = self.output_directions
        if directions.components is not None and directions.sensitivities is not None:
            tensors["components"] = directions.components.bfloat16()
            tensors["sensitivities"] = directions.sensitivities.bfloat16()
        if self.training_batches is not None:
            tensors |= prefixed("training_batches.", self.training_batches.tensors())
        if self.class_statistics is not None:
            tensors |= prefixed("class_statistics.", self.class_statistics.tensors())
        return tensors

    def config(self) -> Config:
        return {
            "method": self.method,
            "layers": [dataclasses.asdict(layer) for layer in self.layers],
            "center": self.center,
            "fluctuations": self.fluctuations.kind,
            "fitted_batch_size": self.fitted_batch_size,
            "batch_size": self.batch_size,
            "rows": self.rows,
            "training_batches": None if self.training_batches is None else self.training_batches.config(),
            "classes": None if self.class_statistics is None else self.class_statistics.classes,
            "validation": None if self.validation is None else self.validation.config(),
        }

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        layers, batches = config["layers"], config.get("training_batches")
        _require_layers(model, layers, "posterior.layers")
        width = 2 * sum(layer["channels"] for layer in layers)
        expected = {"running": Array((width,), (torch.float32, torch.float64))}
        dtypes = (tensors["running"].dtype,) if "running" in tensors else expected["running"].dtypes
        expected["batch_mean"] = Array((width,), dtypes)
        expected |= prefixed("fluctuations.", FLUCTUATIONS[config["fluctuations"]].arrays(width, dtypes))
        if "components" in tensors or "sensitivities" in tensors:
            count = len(tensors["components"]) if "components" in tensors and tensors["components"].dim() else 0
            expected["components"] = Array((max(count, 1), width), (torch.bfloat16,))
            expected["sensitivities"] = Array((None, max(count, 1)), (torch.bfloat16,))
        if batches is not None:
            _require_layers(model, batches["layers"], "posterior.training_batches.layers")
            expected |= prefixed("training_batches.", TrainingBatches.arrays(batches, dtypes))
        if (classes := config.get("classes")) is not None:
            if batches is None:
                refuse("posterior.classes", classes, "null without training_batches")
            channels = sum(layer["channels"] for layer in batches["layers"])
            expected |= prefixed("class_statistics.", ClassStatistics.arrays(classes, 2 * channels))
        return expected

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        fields = dict(config)
        layers = tuple(BatchNormLayer(**layer) for layer in fields.pop("layers"))
        kind, batches = fields.pop("fluctuations"), fields.pop("training_batches", None)
        classes, validation = fields.pop("classes", None), fields.pop("validation", None)
        reference, by_class = under("training_batches.", tensors), under("class_statistics.", tensors)
        tensors = {name: tensor.to(tensors["running"].dtype) for name, tensor in tensors.items()}
        posterior = cls(
            executable=executable,
            likelihood=likelihood,
            layers=layers,
            running=tensors["running"],
            batch_mean=tensors["batch_mean"],
            fluctuations=FLUCTUATIONS[kind](**under("fluctuations.", tensors)),
            output_directions=OutputDirections(None, tensors.get("components"), tensors.get("sensitivities")),
            training_batches=None if batches is None else TrainingBatches.restored(reference, batches),
            class_statistics=None if classes is None else ClassStatistics.restored(by_class),
            validation=None if validation is None else Validation(**validation),
            **fields,
        )
        posterior._require_finite_samples()
        posterior._warn_of_other_weights()
        return posterior

    def _require_finite_samples(self) -> None:
        """Raise an error if sampled statistics are not finite in the network's precision, or in single precision."""
        sampled = self.location + self.spread * self.fluctuations.sample(SAMPLES_CHECKED, torch.Generator())
        dtype = torch.promote_types(self.executable.dtype, torch.float32)
        finite = all(torch.isfinite(part.to(dtype)).all() for part in self.state(sampled).values())
        if not finite or not bool((sampled.chunk(2, -1)[1].exp() > 0).all()):
            refuse("a sample of the statistics", "not finite", "finite")

    def _warn_of_other_weights(self) -> None:
        current = running_coordinates(self.model, self.layers)
        scale = torch.exp(0.5 * current.chunk(2)[1])
        mean, log_var = (current - self.running).chunk(2)
        if torch.cat([mean / scale, log_var]).abs().max() > 0.05:
            warn(
                "The running statistics of model differ from those of the network that the posterior was fitted on, "
                "so its weights are probably different. Fit the method again for this network."
            )


def _require_layers(model: nn.Module, layers: list[dict[str, Any]], where: str) -> None:
    """Raise an error if the layers of a file are not layers of the network."""
    modules = find_batchnorm(model)
    expected = {
        name: {"name": name, "channels": layer.num_features, "eps": layer.eps} for name, layer in modules.items()
    }
    names = [layer["name"] for layer in layers]
    if len(set(names)) < len(names) or any(expected.get(layer["name"]) != layer for layer in layers):
        refuse(where, layers, "batch-norm layers of the network with the same eps, each once,")


def coordinates(mean: Tensor, var: Tensor, layers: tuple[BatchNormLayer, ...]) -> Tensor:
    """Return coordinates (means, log(variances + eps)), (..., 2C), of statistics (..., C)."""
    eps_values, channels = zip(*((layer.eps, layer.channels) for layer in layers), strict=True)
    eps = torch.tensor(eps_values, dtype=torch.float64).repeat_interleave(torch.tensor(channels))
    log_var = torch.log(var.double() + eps.to(var.device))
    return torch.cat([mean.double(), log_var], dim=-1).to(mean.dtype)


def running_coordinates(model: nn.Module, layers: tuple[BatchNormLayer, ...]) -> Tensor:
    """Return a network's current running statistics in coordinates, (2C,), double."""
    buffers = dict(model.named_buffers())
    mean, var = (torch.cat([buffers[f"{layer.name}.running_{kind}"] for layer in layers]) for kind in ("mean", "var"))
    return coordinates(mean.double(), var.double(), layers)


def layer_columns(layers: tuple[BatchNormLayer, ...], names: set[str]) -> Tensor:
    """Return the indices of the coordinates that belong to the layers with these names."""
    inside = torch.tensor([layer.name in names for layer in layers])
    channels = inside.repeat_interleave(torch.tensor([layer.channels for layer in layers]))
    return torch.cat([channels, channels]).nonzero().squeeze(1)
