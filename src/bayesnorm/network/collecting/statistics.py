"""Collect the batch-norm statistics of whole mini-batches, all layers in one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ...errors import InputError, NetworkError
from ..copying import device_of, dtype_of, private_copy, require_finite_weights, unwrap
from ..inputs import as_input, call_network
from ..layers import BatchNormLayer, LayerChoice, choose_layers, find_batchnorm, require_batchnorm
from ..randomness import isolated_randomness, isolated_torch_randomness
from ..restoring import TensorKeeper, restore_tensors, running_statistics, writable_tensors
from .batches import MiniBatches
from .moments import moments_from_sums, statistics_dtype
from .normalising import NormalisingByBatch

Progress = Callable[[int, int], None]
"""A function of (done, total)."""

Look = Callable[[Tensor], None]
"""A function that is called with the first examples before a batch is run."""

# Number of training examples that `fit` keeps to check the network's outputs; they are in memory, never in files.
EXAMPLE_ROWS, EXAMPLE_ELEMENTS = 64, 2**21

# Some batches, a 16th of them and at least one of eight, are run again as several smaller ones. Few new examples can
# then be compared with equally few training examples, whose statistics are not just wider. 0 stands for halves of the
# batch.
SMALL_SHARE, SMALL_LEAST, SMALL_OF = 16, 1, 8
# For tables, where forward passes cost little: as many batches as contain this many rows.
SMALL_ROWS = 512
SMALL_SIZES = (4, 0, 8, 2, 8, 4, 8, 1, 8, 4, 0, 8, 8, 4, 0, 8)


@dataclass(frozen=True)
class BatchStatistics:
    """Joint statistics of S mini-batches over the C channels of all chosen layers, concatenated in running order.

    Args:
        layers: The layers, in running order.
        mean: Batch means, (S, C).
        var: Biased batch variances, (S, C), as used in training.
        running_mean: The network's own running mean, (C,).
        running_var: The network's own running variance, (C,).
        batch_size: M, the number of examples in a batch.
        rows: N, the number of training examples that batches are sampled from.
        example: A few of the inputs, to check the network's outputs with.
        small: Means and biased variances of some smaller batches, (2, batches, C), by their size.
        halved: Indices of the batches whose halves are the small batches of half the size, in their order.
    """

    layers: tuple[BatchNormLayer, ...]
    mean: Tensor
    var: Tensor
    running_mean: Tensor
    running_var: Tensor
    batch_size: int
    rows: int
    example: Tensor
    small: dict[int, Tensor] = field(default_factory=dict)
    halved: tuple[int, ...] = ()

    @property
    def statistics(self) -> BatchStatistics:
        """Return these statistics, as `UnitMoments` does."""
        return self


@dataclass(frozen=True)
class UnitMoments:
    """How much one training example contributes to a batch's statistics, per channel; see `collect_moments`.

    Args:
        statistics: Population mean and variance of every channel, as those of one batch: (1, C).
        mean_std: Standard deviation over examples of an example's average of h, (C,).
        square_std: Standard deviation over examples of an example's average of (h - mean)^2, (C,).
        batches: The statistics of the batches that the examples were run in, (S, C), if known.
    """

    statistics: BatchStatistics
    mean_std: Tensor
    square_std: Tensor
    batches: BatchStatistics | None = None


def collect_statistics(
    model: nn.Module,
    batches: MiniBatches,
    layers: LayerChoice = None,
    progress: Progress | None = None,
    look: Look | None = None,
) -> BatchStatistics:
    """Return statistics of mini-batches, with the chosen layers normalising by the batch, as in training.

    Everything else is in evaluation mode: dropout is off, and other batch-norm layers use their running statistics. A
    private copy is run; the user's model is not modified.
    """
    visit = _run_batches(model, batches, layers, progress, look)
    mean, var = (torch.stack(part) for part in zip(*visit.found, strict=True))
    return visit.statistics(mean, var, batches)


def collect_moments(
    model: nn.Module,
    batches: MiniBatches,
    layers: LayerChoice = None,
    progress: Progress | None = None,
    look: Look | None = None,
) -> UnitMoments:
    """Run the network once over the data in batches, as in training, and return the moments of every channel's input h.

    In a convolution, an example's pixels are not independent. A batch's mean and variance average over the examples'
    own averages of h and of (h - mean)^2, so the spread of these averages matters.
    """
    visit = _run_batches(model, batches, layers, progress, look, whole_data=True)
    rows = batches.batch_size * len(visit.found)
    sums, about = torch.stack(visit.found), visit.running_mean
    found = moments_from_sums(sums.sum(0), rows, about)
    each = sums[: batches.count, :2] / batches.batch_size
    own_mean, own_var = each[:, 0] + about.double(), each[:, 1] - each[:, 0].square()
    own = visit.statistics(own_mean.to(about.dtype), own_var.clamp_min(0).to(about.dtype), batches)
    mean, var, mean_std, square_std = (
        part.to(visit.running_mean.dtype)
        for part in (found.mean[None], found.var[None], found.mean_var.sqrt(), found.square_var.sqrt())
    )
    return UnitMoments(visit.statistics(mean, var, batches), mean_std, square_std, own)


@dataclass(frozen=True)
class _Visit:
    """Results of running training batches, and the layers that they belong to.

    Args:
        layers: The chosen layers, in running order.
        running_mean: Their own running means, (C,).
        running_var: Their own running variances, (C,).
        example: A few of the inputs.
        found: For every batch, means and biased variances, (2, C), or sums over examples, (5, C).
        small: Means and biased variances of smaller batches, (2, batches, C), by size.
        halved: Indices of the batches whose halves are the small batches of half the size.
    """

    layers: tuple[BatchNormLayer, ...]
    running_mean: Tensor
    running_var: Tensor
    example: Tensor
    found: list[Tensor]
    small: dict[int, Tensor]
    halved: tuple[int, ...]

    def statistics(self, mean: Tensor, var: Tensor, batches: MiniBatches) -> BatchStatistics:
        """Return the statistics; refuse statistics that are not finite."""
        statistics = BatchStatistics(
            layers=self.layers,
            mean=mean,
            var=var,
            running_mean=self.running_mean,
            running_var=self.running_var,
            batch_size=batches.batch_size,
            rows=batches.rows,
            example=self.example,
            small=self.small,
            halved=self.halved,
        )
        _require_finite(statistics)
        return statistics


@torch.inference_mode(False)
@torch.no_grad()
def _run_batches(
    model: nn.Module,
    batches: MiniBatches,
    layers: LayerChoice,
    progress: Progress | None,
    look: Look | None,
    whole_data: bool = False,
) -> _Visit:
    """Run a private copy of the network over batches, with its chosen layers normalising by the batch.

    Args:
        model: The user's network.
        batches: The training examples, and how they form batches.
        layers: The batch-norm layers that normalise by the batch; see `LayerChoice`.
        progress: A function that is called after every batch.
        look: A function that is called with the first two examples, before any batch is run.
        whole_data: Whether to run every example once and sum over examples, instead of random batches.
    """
    original = unwrap(model)
    require_batchnorm(original)
    device, dtype = device_of(original), dtype_of(original)
    require_finite_weights(original)
    network = private_copy(original)
    normalising: NormalisingByBatch | None = None
    found: list[Tensor] = []
    small: dict[int, list[Tensor]] = {}
    halved: list[int] = []
    examples: list[Tensor] = []
    written = writable_tensors(network), running_statistics(network)
    weights = TensorKeeper(network).forbid_weight_changes(again=lambda: network(examples[0][:2].clone()))
    with isolated_randomness(batches.seed, device), restore_tensors(*written) as put_back, weights:
        walk, total = (batches.epoch(), batches.rows // batches.batch_size) if whole_data else (batches, len(batches))
        for done, batch in enumerate(walk, start=1):
            x = as_input(batch, "train_data", device, dtype)
            missing = min(EXAMPLE_ROWS, max(4, EXAMPLE_ELEMENTS // x[0].numel())) - sum(map(len, examples))
            if missing > 0:
                examples.append(x[:missing])
            if normalising is None:
                chosen = _chosen(network, x[:2], layers)
                if look is not None:
                    look(x[:2])
                normalising = NormalisingByBatch(network, chosen, whole_data)
                normalising.choose_layout(x[:2])
                put_back()
            found.append(normalising.run(x))
            again = max(SMALL_LEAST, total // SMALL_SHARE, SMALL_ROWS // len(x) if x.dim() == 2 else 0)
            if total >= SMALL_OF and done <= again:
                size = SMALL_SIZES[(done - 1) % len(SMALL_SIZES)] or len(x) // 2
                if size < len(x):
                    groups = len(x) // size
                    with isolated_torch_randomness(done, device):  # so that other batches get the same random numbers
                        try:
                            small.setdefault(size, []).append(normalising.run_groups(x[: groups * size], groups))
                            if groups == 2 and size == len(x) // 2:  # three examples have no halves
                                halved.append(done - 1)
                        except (
                            InputError
                        ):  # a network may refuse so few examples; if it refuses every batch, that is an error
                            normalising.run(x)
            if progress is not None:
                progress(done, total)
    assert normalising is not None
    own = find_batchnorm(original)
    drawn = {name: own[name] for name in normalising.modules}
    kept = statistics_dtype(dtype)
    running_mean, running_var = zip(*((layer.running_mean, layer.running_var) for layer in drawn.values()), strict=True)
    return _Visit(
        layers=tuple(BatchNormLayer(name, layer.num_features, layer.eps) for name, layer in drawn.items()),
        running_mean=torch.cat(running_mean).to(kept),
        running_var=torch.cat(running_var).to(kept),
        example=torch.cat(examples),
        found=found,
        small={size: torch.cat(parts, dim=1) for size, parts in small.items() if parts},
        halved=tuple(halved),
    )


@torch.inference_mode(False)
@torch.no_grad()
def require_layers(model: nn.Module, batches: MiniBatches, layers: LayerChoice) -> None:
    """Refuse a network if layers cannot be chosen in this way, or have no statistics; runs two examples."""
    original = unwrap(model)
    require_batchnorm(original)
    with isolated_randomness(batches.seed, device_of(original)):
        rows = as_input(next(iter(batches)), "train_data", device_of(original), dtype_of(original))[:2]
        network = private_copy(original)
        with restore_tensors(writable_tensors(network), running_statistics(network)):
            _chosen(network, rows, layers)


def _chosen(network: nn.Module, x: Tensor, layers: LayerChoice) -> tuple[str, ...]:
    """Return the layers to sample; a forward pass over two examples shows which run, and in which order."""
    modules = find_batchnorm(network)
    calls: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda _module, _args, name=name: calls.append(name))
        for name, module in modules.items()
    ]
    try:
        call_network(network, x.clone(), "train_data")
    finally:
        for handle in handles:
            handle.remove()
    chosen = choose_layers(network, tuple(dict.fromkeys(calls)), layers)
    if "" in chosen:
        raise NetworkError(
            f"model: it is a single {type(network).__name__} layer. Pass a network that contains it, such as "
            "nn.Sequential(layer, head)."
        )
    buffers = dict(network.named_buffers())
    for name in chosen:
        if calls.count(name) > 1:
            raise NetworkError(
                f"model: batch-norm layer {name!r} is called {calls.count(name)} times in one forward pass, so a "
                "batch has no single statistic for it. Use a separate layer for each call, or leave it out with "
                "layers=."
            )
        if modules[name].running_mean is None:
            raise NetworkError(
                f"model: batch-norm layer {name!r} has no running statistics (track_running_stats=False), so it "
                "cannot run in evaluation mode. Train with running statistics, or leave it out with layers=."
            )
        if f"{name}.running_mean" not in buffers or f"{name}.running_var" not in buffers:
            raise NetworkError(
                f"model: batch-norm layer {name!r} shares its running statistics with another layer, so they cannot "
                "be sampled separately. Give it its own statistics, or leave it out with layers=."
            )
    return chosen


def _require_finite(statistics: BatchStatistics) -> None:
    """Refuse statistics that are NaN or infinite; the error names the layer."""
    start = 0
    for layer in statistics.layers:
        part = slice(start, start + layer.channels)
        start = part.stop
        good = torch.isfinite(statistics.mean[:, part]) & torch.isfinite(statistics.var[:, part])
        if not good.all():
            batches = int((~good.all(dim=1)).sum())
            raise NetworkError(
                f"model: a statistic of batch-norm layer {layer.name!r} is NaN or infinite in {batches} of "
                f"{len(good)} batches. Look for overflow before that layer (half precision, very large inputs)."
            )
