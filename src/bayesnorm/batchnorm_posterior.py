"""The posterior that all batch-norm methods share: a centre, and fluctuations about it.

A draw overrides the running statistics of the chosen layers. It is written in coordinates in which every
real number is allowed: the means as they are, and log(variance + eps) for the variances, which is what the layer
divides by. Batch statistics fluctuate as 1/M about their mean, so the posterior of another batch size M' has
the same fluctuations times sqrt(M / M').
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from .arguments import as_whole, require_seed
from .engines.directions import mixed_directions
from .errors import BayesNormError, BayesNormWarning, FileFormatError
from .files import under
from .fluctuations import Fluctuations, fluctuations_from
from .likelihoods import Likelihood
from .network import BatchNormLayer, CompiledExecutable, Executable, LayerChoice, State, choose_layers
from .posterior import Posterior, require_draws

Center = Literal["running", "batch"]


@dataclass(frozen=True, eq=False)
class BatchNormPosterior(Posterior):
    """A distribution over batch-norm statistics; C channels in all layers together, 2C coordinates.

    Args:
        method: The method that made it, for the record.
        layers: The layers whose statistics are drawn, in running order.
        center: "running": draws lie about the network's own running statistics, so that the deployed network is
            the centre of its own posterior; "batch": about the mean of the batch statistics, as published.
        running: The network's running statistics in coordinates, (2C,).
        batch_mean: The mean of the batch statistics in coordinates, (2C,).
        fluctuations: Distribution of a batch's deviation from that mean, at `fitted_batch_size`.
        fitted_batch_size: M, the batch size that the fluctuations belong to.
        batch_size: M', the effective batch size of the draws.
        rows: N, the training rows.
        components: Deviations that move the outputs most, (n, 2C), or None; see `engines/directions.py`.
        sensitivities: How far each of them moves some outputs, (outputs, n), or None.
    """

    kind: ClassVar[str] = "batchnorm"

    method: str
    layers: tuple[BatchNormLayer, ...] = dataclasses.field(repr=False)
    center: Center
    running: Tensor = dataclasses.field(repr=False)
    batch_mean: Tensor = dataclasses.field(repr=False)
    fluctuations: Fluctuations = dataclasses.field(repr=False)
    fitted_batch_size: int
    batch_size: float
    rows: int
    components: Tensor | None = dataclasses.field(default=None, repr=False)
    sensitivities: Tensor | None = dataclasses.field(default=None, repr=False)

    @property
    def centre(self) -> Tensor:
        """Where draws lie about, (2C,)."""
        return self.running if self.center == "running" else self.batch_mean

    @property
    def spread(self) -> float:
        """What fluctuations are multiplied with for the effective batch size."""
        return math.sqrt(self.fitted_batch_size / self.batch_size)

    def sample(self, n: int, seed: int = 0) -> State:
        generator = torch.Generator().manual_seed(require_seed(seed))
        return self.state(self.centre + self.spread * self.fluctuations.sample(require_draws(n), generator))

    def compile(self, *, dtype: torch.dtype | None = None, tf32: bool = True, mode: str = "reduce-overhead") -> Self:
        executable = CompiledExecutable(self.model, self.executable.output, dtype=dtype, tf32=tf32, mode=mode)
        return dataclasses.replace(self, executable=executable)

    def state(self, coordinates: Tensor) -> State:
        """Running statistics by buffer name, from coordinates (..., 2C)."""
        mean, log_var = coordinates.to(self.executable.device).chunk(2, dim=-1)
        sizes = [layer.channels for layer in self.layers]
        state: State = {}
        for layer, m, v in zip(self.layers, mean.split(sizes, -1), log_var.split(sizes, -1), strict=True):
            state[f"{layer.name}.running_mean"] = m
            state[f"{layer.name}.running_var"] = v.exp() - layer.eps
        return state

    def directions(self, rank: int) -> Tensor:
        """`rank` deviations whose covariance stands for that of all fluctuations, (rank, 2C).

        Those that move the outputs as all of them would, where the fit found them; else principal components, scaled up
        for what they leave out.
        """
        kept: dict[int, Tensor] = self.__dict__.setdefault("_directions", {})
        if rank not in kept:
            if self.components is None or self.sensitivities is None:
                found, explained = self.fluctuations.principal(rank)
                kept[rank] = found / explained[-1].sqrt()
            else:
                kept[rank] = mixed_directions(self.components, self.sensitivities, rank)
        return kept[rank]

    def at_batch_size(self, batch_size: float) -> Self:
        """The posterior of another effective batch size: the same statistics, fluctuations times sqrt(M / M')."""
        number = isinstance(batch_size, float) or as_whole(batch_size) is not None
        if not number or not 0 < batch_size < math.inf:
            raise BayesNormError(f"batch_size: {batch_size!r} was given; a positive number would work.")
        return self._sharing_directions(dataclasses.replace(self, batch_size=float(batch_size)))

    def with_likelihood(self, likelihood: Likelihood) -> Self:
        return self._sharing_directions(super().with_likelihood(likelihood))

    def _sharing_directions(self, other: Self) -> Self:
        """Another posterior over the same fluctuations, for which directions need not be found again."""
        other.__dict__["_directions"] = self.__dict__.setdefault("_directions", {})
        return other

    def at_layers(self, layers: LayerChoice) -> Self:
        """The posterior that draws only some of its layers; the others keep the network's running statistics.

        The statistics stay those of batches that all layers normalised. Fitting with `layers=` instead collects them
        with the other layers in evaluation mode, where more of a batch's chance reaches the later layers.
        """
        chosen = set(choose_layers(self.model, [layer.name for layer in self.layers], layers))
        kept = torch.cat(
            [torch.full((layer.channels,), layer.name in chosen, dtype=torch.bool) for layer in self.layers]
        )
        columns = torch.cat([kept, kept]).nonzero().squeeze(1).to(self.running.device)
        return dataclasses.replace(
            self,
            layers=tuple(layer for layer in self.layers if layer.name in chosen),
            running=self.running[columns],
            batch_mean=self.batch_mean[columns],
            fluctuations=self.fluctuations.columns(columns),
            components=None,
            sensitivities=None,
        )

    def tensors(self) -> dict[str, Tensor]:
        parts = {f"fluctuations.{name}": tensor for name, tensor in self.fluctuations.tensors().items()}
        if self.components is not None and self.sensitivities is not None:
            parts |= {"components": self.components.bfloat16(), "sensitivities": self.sensitivities.bfloat16()}
        return {"running": self.running, "batch_mean": self.batch_mean, **parts}

    def config(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "layers": [dataclasses.asdict(layer) for layer in self.layers],
            "center": self.center,
            "fluctuations": self.fluctuations.kind,
            "fitted_batch_size": self.fitted_batch_size,
            "batch_size": self.batch_size,
            "rows": self.rows,
        }

    @classmethod
    def restored(
        cls,
        executable: Executable,
        likelihood: Likelihood,
        tensors: dict[str, Tensor],
        config: dict[str, Any],
    ) -> Self:
        fields = dict(config)
        layers = tuple(BatchNormLayer(**layer) for layer in fields.pop("layers"))
        kind = fields.pop("fluctuations")
        running = tensors["running"]
        tensors = {name: tensor.to(running.dtype) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise FileFormatError(f"path: {name} holds NaN or infinite values; save the posterior again.")
        posterior = cls(
            executable=executable,
            likelihood=likelihood,
            layers=layers,
            running=tensors["running"],
            batch_mean=tensors["batch_mean"],
            fluctuations=fluctuations_from(kind, under("fluctuations.", tensors)),
            components=tensors.get("components"),
            sensitivities=tensors.get("sensitivities"),
            **fields,
        )
        posterior._require_whole()
        posterior._warn_of_other_weights()
        return posterior

    def _require_whole(self) -> None:
        """Refuse what a file may hold and no method makes."""
        width = 2 * sum(layer.channels for layer in self.layers)
        shapes = tuple(self.running.shape), tuple(self.batch_mean.shape)
        drawn = tuple(self.fluctuations.sample(1, torch.Generator()).shape)
        if shapes != ((width,), (width,)) or drawn != (1, width):
            raise FileFormatError(f"path: statistics of {shapes} and {drawn} for {width} coordinates.")
        if self.center not in ("running", "batch"):
            raise FileFormatError(f"path: center {self.center!r} is unknown.")
        if self.components is not None and self.sensitivities is not None:
            shapes = tuple(self.components.shape), tuple(self.sensitivities.shape)
            if shapes[0] != (*shapes[1][1:], width):
                raise FileFormatError(f"path: components of {shapes} for {width} coordinates.")
        self.at_batch_size(self.fitted_batch_size).at_batch_size(self.batch_size).sample(1)

    def _warn_of_other_weights(self) -> None:
        buffers = dict(self.model.named_buffers())
        names = [layer.name for layer in self.layers]
        mean = torch.cat([buffers[f"{name}.running_mean"] for name in names]).double()
        var = torch.cat([buffers[f"{name}.running_var"] for name in names]).double()
        own = coordinates(mean, var, self.layers)
        scale = torch.exp(0.5 * own.chunk(2)[1])
        off = torch.cat([(own - self.running).chunk(2)[0] / scale, (own - self.running).chunk(2)[1]]).abs().max()
        if off > 0.05:
            warnings.warn(
                "model: its running statistics differ from those of the network that the posterior was fitted on, so "
                "its weights are probably others; fit again for this network.",
                BayesNormWarning,
                stacklevel=5,
            )


def coordinates(mean: Tensor, var: Tensor, layers: tuple[BatchNormLayer, ...]) -> Tensor:
    """(means, log(variances + eps)) of statistics (..., C), as (..., 2C)."""
    eps = torch.cat([torch.full((layer.channels,), layer.eps, dtype=torch.float64) for layer in layers])
    log_var = torch.log(var.double() + eps.to(var.device))
    return torch.cat([mean.double(), log_var], dim=-1).to(mean.dtype)
