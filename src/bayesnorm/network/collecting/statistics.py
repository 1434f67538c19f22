"""Collect the batch-norm statistics of whole mini-batches, all layers from one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...errors import NetworkError
from ..copying import device_of, dtype_of, private_copy, require_finite_weights, unwrap
from ..inputs import as_input, call_network
from ..layers import BatchNormLayer, LayerChoice, choose_layers, find_batchnorm, require_batchnorm
from ..randomness import isolated_randomness
from ..undisturbed import running_statistics, unwritten, writable_tensors
from .batches import MiniBatches
from .moments import mean_and_var, moments_from_sums, row_sums, statistics_dtype

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

EXAMPLE_ROWS, EXAMPLE_ELEMENTS = 64, 2**21
"""Training rows that a fit looks at the network's outputs on; they are not kept."""


@dataclass(frozen=True)
class BatchStatistics:
    """Joint statistics of S mini-batches over the C channels of all chosen layers, concatenated as they run.

    Args:
        layers: The layers, in running order.
        mean: Batch means, (S, C).
        var: Biased batch variances, (S, C), which is what training normalises with.
        running_mean: The network's own running mean, (C,).
        running_var: The network's own running variance, (C,).
        batch_size: M.
        rows: N, the training rows that batches were drawn from.
        example: A few of the inputs, to look at what the network makes of them.
    """

    layers: tuple[BatchNormLayer, ...]
    mean: Tensor
    var: Tensor
    running_mean: Tensor
    running_var: Tensor
    batch_size: int
    rows: int
    example: Tensor

    @property
    def statistics(self) -> BatchStatistics:
        """These statistics, as `UnitMoments` has them."""
        return self


@dataclass(frozen=True)
class UnitMoments:
    """How much one training row contributes to a batch's statistics, per channel; see `collect_moments`.

    Args:
        statistics: Population mean and variance of every channel, as those of one batch: (1, C).
        mean_std: Over rows, standard deviation of a row's average of h, (C,).
        square_std: Over rows, standard deviation of a row's average of (h - mean)^2, (C,).
    """

    statistics: BatchStatistics
    mean_std: Tensor
    square_std: Tensor


def collect_statistics(
    model: nn.Module,
    batches: MiniBatches,
    layers: LayerChoice = None,
    progress: Progress | None = None,
) -> BatchStatistics:
    """Run the network over mini-batches with the chosen layers normalising by the batch, as in training.

    Everything else is in evaluation mode: dropout is off, other batch-norm layers use their running
    statistics. The work happens on a private copy; the user's model is not touched.
    """
    visit = _visit(model, batches, layers, _batch_statistics, progress, whole_data=False)
    mean, var = (torch.stack(part) for part in zip(*visit.found, strict=True))
    return visit.statistics(mean, var, batches)


def collect_moments(
    model: nn.Module,
    batches: MiniBatches,
    layers: LayerChoice = None,
    progress: Progress | None = None,
) -> UnitMoments:
    """Run the network once over the data in batches, as in training, and take the moments of every channel's input h.

    In a convolution, a row's pixels are not independent: what a batch's mean and variance average over is the rows'
    own averages of h and of (h - mean)^2, so it is their spread that counts.
    """
    visit = _visit(model, batches, layers, _sums_over_rows, progress, whole_data=True)
    rows, sums = (sum(parts) for parts in zip(*visit.found, strict=True))
    found = moments_from_sums(sums, rows, visit.running_mean)
    mean, var, mean_std, square_std = (
        part.to(visit.running_mean.dtype)
        for part in (found.mean[None], found.var[None], found.mean_var.sqrt(), found.square_var.sqrt())
    )
    return UnitMoments(visit.statistics(mean, var, batches), mean_std, square_std)


@dataclass(frozen=True)
class _Visit:
    """What a walk over training batches found, and the layers it was found at."""

    layers: tuple[BatchNormLayer, ...]
    running_mean: Tensor
    running_var: Tensor
    example: Tensor
    found: list[Any]

    def statistics(self, mean: Tensor, var: Tensor, batches: MiniBatches) -> BatchStatistics:
        statistics = BatchStatistics(
            layers=self.layers,
            mean=mean,
            var=var,
            running_mean=self.running_mean,
            running_var=self.running_var,
            batch_size=batches.batch_size,
            rows=batches.rows,
            example=self.example,
        )
        _require_finite(statistics)
        return statistics


@torch.inference_mode(False)
@torch.no_grad()
def _visit(
    model: nn.Module,
    batches: MiniBatches,
    layers: LayerChoice,
    look: Callable[[nn.Module, dict[str, _BatchNorm], Tensor], Any],
    progress: Progress | None,
    whole_data: bool,
) -> _Visit:
    """Show `look` a private copy of the network, the chosen layers and every batch in turn."""
    original = unwrap(model)
    require_batchnorm(original)
    device, dtype = device_of(original), dtype_of(original)
    require_finite_weights(original)
    network = private_copy(original)
    modules = find_batchnorm(network)
    chosen: tuple[str, ...] = ()
    found: list[Any] = []
    examples: list[Tensor] = []
    written = writable_tensors(network), running_statistics(network)
    with isolated_randomness(batches.seed, device), unwritten(*written):
        walk, total = (batches.epoch(), batches.rows // batches.batch_size) if whole_data else (batches, len(batches))
        for done, batch in enumerate(walk, start=1):
            x = as_input(batch, "train_data", device, dtype)
            missing = min(EXAMPLE_ROWS, max(4, EXAMPLE_ELEMENTS // x[0].numel())) - sum(map(len, examples))
            if missing > 0:
                examples.append(x[:missing])
            if not chosen:
                chosen = _chosen(network, modules, x[:2], layers)
            found.append(look(network, {name: modules[name] for name in chosen}, x))
            if progress is not None:
                progress(done, total)
    own = find_batchnorm(original)
    kept = statistics_dtype(dtype)
    running_mean, running_var = zip(*((own[name].running_mean, own[name].running_var) for name in chosen), strict=True)
    return _Visit(
        layers=tuple(BatchNormLayer(name, modules[name].num_features, modules[name].eps) for name in chosen),
        running_mean=torch.cat(running_mean).to(kept),
        running_var=torch.cat(running_var).to(kept),
        example=torch.cat(examples),
        found=found,
    )


def _chosen(network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor, layers: LayerChoice) -> tuple[str, ...]:
    """Which layers to resample; a look at a pass over two rows tells which run, and in what order."""
    calls: list[str] = []
    _pass_with_hooks(network, modules, x, lambda name, *_: calls.append(name))
    chosen = choose_layers(network, tuple(dict.fromkeys(calls)), layers)
    if "" in chosen:
        raise NetworkError(
            f"model: is itself a {type(network).__name__}, a layer with no network about it; a network that holds it, "
            "such as nn.Sequential(layer, head), would work."
        )
    buffers = dict(network.named_buffers())
    for name in chosen:
        if calls.count(name) > 1:
            raise NetworkError(
                f"model: batch-norm layer {name!r} is called {calls.count(name)} times in one forward, so a batch "
                "has no single statistic for it; give each call a layer of its own, or leave it out with layers=."
            )
        if modules[name].running_mean is None:
            raise NetworkError(
                f"model: batch-norm layer {name!r} keeps no running statistics (track_running_stats=False), so the "
                "network has no evaluation mode there; train with running statistics, or leave it out with layers=."
            )
        if f"{name}.running_mean" not in buffers or f"{name}.running_var" not in buffers:
            raise NetworkError(
                f"model: batch-norm layer {name!r} shares its running statistics with another layer, so they cannot be "
                "drawn apart; give it its own, or leave it out with layers=."
            )
    return chosen


def _batch_statistics(network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and biased variances of one batch, each (C,)."""
    mean, var, _ = _normalised_by_batch(network, modules, x, lambda name, h: None)
    return mean, var


def _sums_over_rows(network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor) -> tuple[int, Tensor]:
    """Return the number of rows of one batch, and their sums for `moments_from_sums`, (5, C)."""

    def sums(name: str, h: Tensor) -> Tensor:
        return row_sums(h, running_mean[name])

    running_mean: dict[str, Any] = {name: module.running_mean for name, module in modules.items()}
    _, _, found = _normalised_by_batch(network, modules, x, sums)
    return len(x), torch.cat([found[name] for name in modules], dim=1)


def _normalised_by_batch(
    network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor, look: Callable[[str, Tensor], Any]
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """One pass with every layer normalising by the batch, as in training.

    Gives means and biased variances, each (C,), and what `look` made of each layer's input.
    """
    found: dict[str, tuple[Tensor, Tensor]] = {}
    seen: dict[str, Any] = {}

    def normalise_by_batch(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        h = (args[0] if args else kwargs["input"]).detach()  # a forward may take derivatives of its own
        mean, var = mean_and_var(h)
        if name in found:
            raise NetworkError(f"model: batch-norm layer {name!r} is called more than once in a forward.")
        found[name], seen[name] = (mean, var), look(name, h)
        dtype = kept[name]["running_mean"].dtype
        module._buffers["running_mean"], module._buffers["running_var"] = mean.to(dtype), var.to(dtype)

    kept: dict[str, dict[str, Any]] = {name: dict(module._buffers) for name, module in modules.items()}
    try:
        _pass_with_hooks(network, modules, x, normalise_by_batch)
    finally:
        for name, module in modules.items():
            module._buffers.update(kept[name])
    missing = [name for name in modules if name not in found]
    if missing:
        raise NetworkError(
            f"model: batch-norm layer {missing[0]!r} runs for some batches and not for others; "
            "leave it out with layers=."
        )
    means, variances = zip(*(found[name] for name in modules), strict=True)
    return torch.cat(means), torch.cat(variances), seen


def _pass_with_hooks(
    network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor, hook: Callable[[str, nn.Module, Any, Any], None]
) -> None:
    """A pass in which `hook(name, module, args, kwargs)` sees every call of a layer before it is made."""
    handles = [
        module.register_forward_pre_hook(partial(hook, name), with_kwargs=True) for name, module in modules.items()
    ]
    try:
        call_network(network, x.clone(), "train_data")
    finally:
        for handle in handles:
            handle.remove()


def _require_finite(statistics: BatchStatistics) -> None:
    start = 0
    for layer in statistics.layers:
        part = slice(start, start + layer.channels)
        start = part.stop
        good = torch.isfinite(statistics.mean[:, part]) & torch.isfinite(statistics.var[:, part])
        if not good.all():
            batches = int((~good.all(dim=1)).sum())
            raise NetworkError(
                f"model: a statistic of batch-norm layer {layer.name!r} is NaN or infinite in {batches} of "
                f"{len(good)} batches; look for overflow before that layer (half precision, very large inputs)."
            )
