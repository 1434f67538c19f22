"""A module that predicts and also returns the statistics of its batch-norm layers, for files that watch their inputs.

`bayesnorm_runtime` runs such files. They have three kinds of inputs: the network's own; the running statistics of every
layer, (samples, channels) in sampled layers; and what the layers' inputs are compared with (`CONTROLS`). All but the
first have defaults, under which predictions are those of the posterior.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from bayesnorm_runtime import Network

from ..engines import PassEngine
from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..network import CONTROLS, BatchNormLayer, RowStatistics, State, find_batchnorm, watching_module
from ..posterior import (
    AdaptedPosterior,
    BatchNormPosterior,
    Posterior,
    TrainingBatches,
    class_probabilities,
    coordinates,
    in_all_layers,
    running_coordinates,
)
from .branching import SWITCH
from .module import SampledModule, module_of_passes, tensors_of_inputs

# Number of examples for which a file's statistics are compared with the network's, and the largest difference, in
# standard deviations or relative. Differences grow from layer to layer, because each normalises those before it.
ROWS, TOLERANCE = 32, 1e-2

PREFIX = "watch_"
"""The beginning of the names of controls, and of outputs that belong to all layers."""


@dataclass(frozen=True, eq=False)
class Watching:
    """What a file that watches its inputs contains.

    Args:
        module: Inputs, statistics and controls -> predictions, then what the layers show.
        optional: Default values of the inputs after the network's own, by name.
        description: JSON values for the metadata.
        arrays: Arrays for the metadata.
    """

    module: WatchingModule
    optional: State
    description: dict[str, Any]
    arrays: dict[str, np.ndarray]


class WatchingModule(nn.Module):
    """A `SampledModule` whose running statistics are inputs, with one more forward pass that shows all layers.

    Args:
        predictions: The module that predicts.
        shown: The module of `watching_module`.
        layers: The layers that are shown.
        likelihood: Gives class probabilities of the forward pass; None without class statistics.
        inputs: Number of inputs of the network.
    """

    def __init__(
        self,
        predictions: SampledModule,
        shown: fx.GraphModule,
        layers: Sequence[BatchNormLayer],
        likelihood: Likelihood[Any] | None,
        inputs: int,
    ) -> None:
        super().__init__()
        self.predictions, self.shown = predictions, shown
        self._layers, self._likelihood, self._inputs = layers, likelihood, inputs
        layer_names = tuple(f"{layer.name}.input_{kind}" for kind in ("mean", "var") for layer in layers)
        classes = () if likelihood is None else tuple(PREFIX + name for name in ("probs", "shift", "share"))
        self.names = (*predictions.names, *layer_names, *classes)

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        inputs, controls = tensors[: self._inputs], tensors[-len(CONTROLS) :]
        values = dict(self.predictions(*tensors[: -len(CONTROLS)]))
        f, mean, var, shift, strength = self.shown(*inputs, *controls)
        sizes = [layer.channels for layer in self._layers]
        for kind, part in (("mean", mean), ("var", var)):
            for layer, channels in zip(self._layers, part.split(sizes), strict=True):
                values[f"{layer.name}.input_{kind}"] = channels
        if self._likelihood is not None:
            probs = class_probabilities(self._likelihood, f)
            assert probs is not None
            values |= {PREFIX + "probs": probs, PREFIX + "shift": shift, PREFIX + "share": strength}
        return values


def watching(
    posterior: Posterior,
    x: Any,
    engine: PassEngine,
    seed: int,
    outputs: Sequence[str] | None,
    level: float,
    group: int | None,
) -> Watching:
    """Return what a file contains that watches its inputs; the arguments are those of `export`."""
    watched, batches = _require_watchable(posterior)
    passes, count = engine.forward_passes(posterior, seed)
    if len(passes) != 1 or not passes[0].states:
        raise BayesNormError("watch=True needs a posterior that samples batch-norm statistics in one network.")
    states = passes[0].states
    running, batch_mean, _ = in_all_layers(watched, batches)
    location = running if watched.center == "running" else batch_mean
    statistics = _statistics(watched, batches, states)
    predictions = module_of_passes(posterior, x, passes, count, outputs, level, group, statistics)
    classes, likelihood = watched.class_statistics, watched.likelihood
    if watched.validation is not None:
        likelihood = likelihood.with_noise(torch.tensor(watched.validation.temperature))
    module = WatchingModule(
        predictions,
        watching_module(posterior.executable, batches.layers, x),
        batches.layers,
        None if classes is None else likelihood,
        len(tensors_of_inputs(x)),
    )
    recorded = running_coordinates(watched.model, batches.layers).cpu()
    # Different tensors, because torch.export takes the same tensor in two places for one input.
    numbers = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    defaults = (recorded.clone(), recorded.clone(), torch.ones_like(recorded), torch.zeros_like(recorded), *numbers)
    optional = statistics | {PREFIX + name: value for name, value in zip(CONTROLS, defaults, strict=True)}
    mean, var = (
        torch.cat([states[f"{layer.name}.running_{kind}"] for layer in watched.layers], 1) for kind in ("mean", "var")
    )
    points = coordinates(mean.double(), var.double(), watched.layers) - watched.location.double()
    arrays = {"running": recorded, "location": location.double(), "points": points.float()}
    arrays |= {f"batches.{name}": tensor for name, tensor in batches.tensors().items()}
    if classes is not None:
        arrays |= {f"classes.{name}": tensor for name, tensor in classes.tensors().items()}
    description = {
        **batches.config(),
        "sampled": [layer.name for layer in watched.layers],
        "scale": watched.spread**2,
        "optional": [*optional, SWITCH],
        "validation": None if watched.validation is None else watched.validation.config(),
        "is_classifier": classes is not None,
    }
    return Watching(module, optional, description, {name: tensor.cpu().numpy() for name, tensor in arrays.items()})


def require_same_statistics(posterior: Posterior, x: Any, watched: Watching, content: bytes) -> None:
    """Raise an error if a file shows other statistics of its layers than the network, or moves them otherwise.

    Args:
        posterior: The posterior.
        x: Inputs of the network.
        watched: What the file contains.
        content: The file.
    """
    fitted, batches = _require_watchable(posterior)
    rows = x[torch.arange(ROWS) % len(x)]
    tensors = tensors_of_inputs(rows)
    network = RowStatistics(fitted.model, [layer.name for layer in batches.layers], fitted.executable.forward_kwargs)
    mean, var = (part[0].double() for part in network.moments(network.input(rows), 1))
    expected = coordinates(mean, var, batches.layers).numpy()
    file = Network(content, threads=1)
    values = file.batch_coordinates(tuple(tensor.numpy() for tensor in tensors))
    spread = np.exp(0.5 * np.split(expected, 2)[1])
    worst = float((np.abs(values - expected) / np.concatenate([spread, np.ones_like(spread)])).max())
    optional = _other_values(watched.optional)
    with torch.no_grad():
        outputs = watched.module(*tensors, *optional.values())
    feeds = dict(zip(file.inputs, (tensor.numpy() for tensor in tensors), strict=True))
    feeds |= {name: value.numpy() for name, value in optional.items()} | {SWITCH: np.array(True)}
    for name, array in zip(outputs, file.run(tuple(outputs), feeds), strict=True):
        if not name.endswith("label"):
            wide = outputs[name].double().numpy()
            worst = max(worst, float(np.abs(array - wide).max() / max(1e-6, np.abs(wide).max())))
    if not worst <= TOLERANCE:
        raise BayesNormError(
            f"The exported file shows other statistics of its layers than the network: the largest difference is "
            f"{worst:.1e}, and at most {TOLERANCE:g} is allowed. Nothing was written. Export without watch=True."
        )


def _other_values(optional: State) -> State:
    """Return other values of the optional inputs, to see that all of them have an influence."""
    generator = torch.Generator().manual_seed(0)
    changed: State = {}
    for name, value in optional.items():
        noise = 0.1 * torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        is_positive = name.endswith(".running_var") or name == f"{PREFIX}noise"
        changed[name] = value * noise.exp() if is_positive else value + noise * max(1.0, float(value.abs().median()))
    return changed | {f"{PREFIX}weight": torch.tensor(0.3).double(), f"{PREFIX}strength": torch.tensor(-1.0).double()}


def packed(arrays: dict[str, np.ndarray]) -> str:
    """Return arrays as text for the metadata of a file: an archive of NumPy in base64."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return base64.b64encode(file.getvalue()).decode()


def _statistics(posterior: BatchNormPosterior, batches: TrainingBatches, states: State) -> State:
    """Return the running statistics of all recorded layers: those of the samples, and the network's own elsewhere."""
    sampled = {layer.name for layer in posterior.layers}
    modules = find_batchnorm(posterior.model)
    values: State = {}
    for layer in batches.layers:
        for kind in ("running_mean", "running_var"):
            name = f"{layer.name}.{kind}"
            value = states[name] if layer.name in sampled else getattr(modules[layer.name], kind).detach()
            values[name] = value.to(posterior.executable.dtype).clone()
    return values


def _require_watchable(posterior: Posterior) -> tuple[BatchNormPosterior, TrainingBatches]:
    if not isinstance(posterior, BatchNormPosterior) or isinstance(posterior, AdaptedPosterior):
        advice = "Pass posterior.original, and adapt where the file runs."
        if not isinstance(posterior, AdaptedPosterior):
            advice = "Fit MCBN, GaussianBN or StochasticBN. Export the members of an ensemble one by one."
        raise BayesNormError(f"watch=True cannot be used with a {type(posterior).__name__}. {advice}")
    if posterior.training_batches is None:
        raise BayesNormError(
            "watch=True needs a record of how training batches vary. Fit again with states=256 on at least 8 batches."
        )
    return posterior, posterior.training_batches
