"""Collect the batch-norm statistics of whole mini-batches, all layers from one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import NetworkError
from .batches import MiniBatches, isolated_randomness
from .copying import device_of, dtype_of, private_copy, require_finite_weights, unwrap
from .inputs import as_input, call
from .layers import BatchNormLayer, LayerChoice, choose_layers, find_batchnorm, require_batchnorm

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


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
        example: Two of the inputs, to look at what the network makes of them.
    """

    layers: tuple[BatchNormLayer, ...]
    mean: Tensor
    var: Tensor
    running_mean: Tensor
    running_var: Tensor
    batch_size: int
    rows: int
    example: Tensor


@torch.inference_mode(False)
@torch.no_grad()
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
    original = unwrap(model)
    require_batchnorm(original)
    require_finite_weights(original)
    device, dtype = device_of(original), dtype_of(original)
    network = private_copy(original)
    modules = find_batchnorm(network)
    chosen: tuple[str, ...] = ()
    collected: list[tuple[Tensor, Tensor]] = []
    with isolated_randomness(batches.seed, device):
        for done, batch in enumerate(batches, start=1):
            x = as_input(batch, "train_data", device, dtype)
            if not chosen:
                example = x[:2]
                chosen = _chosen(network, modules, example, layers)
            collected.append(_batch_statistics(network, {name: modules[name] for name in chosen}, x))
            if progress is not None:
                progress(done, len(batches))
    mean, var = (torch.stack(part) for part in zip(*collected, strict=True))
    found = tuple(BatchNormLayer(name, modules[name].num_features, modules[name].eps) for name in chosen)
    own = find_batchnorm(original)
    running = [(own[name].running_mean, own[name].running_var) for name in chosen]
    statistics = BatchStatistics(
        layers=found,
        mean=mean,
        var=var,
        running_mean=torch.cat([pair[0] for pair in running]).to(mean.dtype),  # type: ignore[misc]
        running_var=torch.cat([pair[1] for pair in running]).to(mean.dtype),  # type: ignore[misc]
        batch_size=batches.batch_size,
        rows=batches.rows,
        example=example,
    )
    _require_finite(statistics)
    return statistics


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Statistics of half-precision networks are taken in single precision, as batch norm itself does."""
    return torch.promote_types(dtype, torch.float32)


def _chosen(network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor, layers: LayerChoice) -> tuple[str, ...]:
    """Which layers to resample; a look at a pass over two rows tells which run, and in what order."""
    calls: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda _module, _args, name=name: calls.append(name))
        for name, module in modules.items()
    ]
    try:
        call(network, x.clone(), "train_data")
    finally:
        for handle in handles:
            handle.remove()
    chosen = choose_layers(network, tuple(dict.fromkeys(calls)), layers)
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
    return chosen


def _batch_statistics(network: nn.Module, modules: dict[str, _BatchNorm], x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and biased variances of one batch, each (C,), with every layer normalised by them in turn."""
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def normalise_by_batch(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        h = args[0] if args else kwargs["input"]
        over = [0, *range(2, h.dim())]
        var, mean = torch.var_mean(h.to(statistics_dtype(h.dtype)), over, correction=0)
        if name in found:
            raise NetworkError(f"model: batch-norm layer {name!r} is called more than once in a forward.")
        found[name] = mean, var
        dtype = kept[name]["running_mean"].dtype
        module._buffers["running_mean"], module._buffers["running_var"] = mean.to(dtype), var.to(dtype)

    kept: dict[str, dict[str, Any]] = {name: dict(module._buffers) for name, module in modules.items()}
    handles = [
        module.register_forward_pre_hook(partial(normalise_by_batch, name), with_kwargs=True)
        for name, module in modules.items()
    ]
    try:
        call(network, x.clone(), "train_data")
    finally:
        for handle in handles:
            handle.remove()
        for name, module in modules.items():
            module._buffers.update(kept[name])
    missing = [name for name in modules if name not in found]
    if missing:
        raise NetworkError(
            f"model: batch-norm layer {missing[0]!r} runs for some batches and not for others; "
            "leave it out with layers=."
        )
    means, variances = zip(*(found[name] for name in modules), strict=True)
    return torch.cat(means), torch.cat(variances)


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
