"""Collect the batch-norm statistics of whole mini-batches, all layers in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...errors import InputError, NetworkError
from ...progress import Progress
from ..calling import call_network, called_modules
from ..copying import device_of, dtype_of, private_copy, require_finite_weights, unwrap
from ..layers import BatchNormLayer, LayerChoice, choose_layers, find_batchnorm, require_batchnorm
from ..restoring import (
    TensorKeeper,
    isolated_randomness,
    isolated_torch_randomness,
    restore_tensors,
    running_statistics,
    writable_tensors,
)
from ..several import joined_rows, run_forward
from .batches import ArrayRows, MiniBatches
from .moments import moments_from_sums, statistics_dtype
from .normalising import NormalisingByBatch

# Number of training examples that `fit` keeps to check the network's outputs; they are in memory, never in files.
EXAMPLE_ROWS, EXAMPLE_ELEMENTS = 64, 2**21

# Some batches, a 16th of them and at least one of eight, are run again as several smaller ones. Few new examples can
# then be compared with equally few training examples, whose statistics are not just wider. 0 stands for halves of the
# batch.
SMALL_SHARE, SMALL_LEAST, SMALL_OF = 16, 1, 8
# For tables, where forward passes cost little: as many batches as contain this many rows.
SMALL_ROWS = 512
SMALL_SIZES = (4, 0, 8, 2, 8, 4, 8, 1, 8, 4, 0, 8, 8, 4, 0, 8)
# More batches follow until there are an eighth of the number of all batches, and at least 16, of each of these sizes.
LEAST_SMALL, SMALL_PART, RECORDED_SIZES = 16, 8, (4, 1, 2, 8)


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
    model: nn.Module, batches: MiniBatches, layers: LayerChoice = None, progress: Progress | None = None
) -> BatchStatistics:
    """Return statistics of mini-batches, with the chosen layers normalising by the batch, as in training.

    Everything else is in evaluation mode: dropout is off, and other batch-norm layers use their running statistics. A
    private copy is run; the user's model is not modified.
    """
    return _run_batches(model, batches, layers, progress)[0]


def collect_moments(
    model: nn.Module, batches: MiniBatches, layers: LayerChoice = None, progress: Progress | None = None
) -> UnitMoments:
    """Run the network once over the data in batches, as in training, and return the moments of every channel's input h.

    In a convolution, an example's pixels are not independent. A batch's mean and variance average over the examples'
    own averages of h and of (h - mean)^2, so the spread of these averages matters.
    """
    statistics, sums = _run_batches(model, batches, layers, progress, whole_data=True)
    moments = moments_from_sums(sums.sum(0), batches.batch_size * len(sums), statistics.running_mean)
    mean, var, mean_std, square_std = (
        part.to(statistics.running_mean.dtype)
        for part in (moments.mean[None], moments.var[None], moments.mean_var.sqrt(), moments.square_var.sqrt())
    )
    population = replace(statistics, mean=mean, var=var)
    _require_finite(population)
    return UnitMoments(population, mean_std, square_std, statistics)


@torch.inference_mode(False)
@torch.no_grad()
def _run_batches(
    model: nn.Module, batches: MiniBatches, layers: LayerChoice, progress: Progress | None, whole_data: bool = False
) -> tuple[BatchStatistics, Tensor]:
    """Run a private copy of the network over batches, with its chosen layers normalising by the batch.

    Args:
        model: The user's network.
        batches: The training examples, and how they form batches.
        layers: The batch-norm layers that normalise by the batch; see `LayerChoice`.
        progress: A function that is called after every batch.
        whole_data: Whether to run every example once and sum over examples, instead of random batches.

    Returns:
        The statistics, and the results of every batch: means and biased variances, (batches, 2, C), or sums over
        examples, (batches, 5, C).
    """
    network, modules, device, dtype = _checked_copy(model, batches)
    normalising: NormalisingByBatch | None = None
    results: list[Tensor] = []
    examples: list[Tensor] = []
    written = writable_tensors(network), running_statistics(network)
    weights = TensorKeeper(network).forbid_weight_changes(again=lambda: run_forward(network, examples[0][:2].clone()))
    with isolated_randomness(batches.seed, device), restore_tensors(*written) as put_back, weights:
        walk, total = (batches.epoch(), batches.rows // batches.batch_size) if whole_data else (batches, len(batches))
        small = _SmallBatches(total)
        for done, batch in enumerate(walk, start=1):
            x = batches.form.placed(batch, "train_data", device, dtype)
            missing = min(EXAMPLE_ROWS, max(4, EXAMPLE_ELEMENTS // x[0].numel())) - sum(map(len, examples))
            if missing > 0:
                examples.append(x[:missing])
            if normalising is None:
                normalising = NormalisingByBatch(network, _running_layers(network, x[:2], layers), whole_data)
                normalising.choose_layout(x[:2])
                put_back()
            results.append(normalising.run(x))
            small.run(normalising, x, done)
            if progress is not None:
                progress(done, total)
    assert normalising is not None
    sampled = {name: modules[name] for name in normalising.modules}
    running_mean, running_var = (
        torch.cat([getattr(layer, kind) for layer in sampled.values()]).to(statistics_dtype(dtype))
        for kind in ("running_mean", "running_var")
    )
    values = torch.stack(results)
    if whole_data:
        averages = values[: batches.count, :2] / batches.batch_size
        mean = (averages[:, 0] + running_mean.double()).to(running_mean.dtype)
        var = (averages[:, 1] - averages[:, 0].square()).clamp_min(0).to(running_mean.dtype)
    else:
        mean, var = values.unbind(1)
    statistics = BatchStatistics(
        layers=tuple(BatchNormLayer(name, layer.num_features, layer.eps) for name, layer in sampled.items()),
        mean=mean,
        var=var,
        running_mean=running_mean,
        running_var=running_var,
        batch_size=batches.batch_size,
        rows=batches.rows,
        example=joined_rows(examples),
        small={size: torch.cat(parts, dim=1) for size, parts in small.moments.items()},
        halved=tuple(small.halved),
    )
    _require_finite(statistics)
    return statistics, values


class _SmallBatches:
    """Runs some batches again as several smaller ones.

    Args:
        total: Number of all batches.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.moments: dict[int, list[Tensor]] = {}  # means and biased variances, each (2, groups, C), by size
        self.halved: list[int] = []  # indices of the batches whose halves are the batches of half the size
        self._refused: set[int] = set()  # sizes that the network does not take

    def run(self, normalising: NormalisingByBatch, x: Tensor, done: int) -> None:
        """Run a batch, the `done`-th of all, as smaller ones if more of them are needed."""
        size = self._size(x, done)
        if self.total < SMALL_OF or size is None:
            return
        groups = len(x) // size
        with isolated_torch_randomness(done, x.device):  # so that other batches get the same random numbers
            try:
                moments = normalising.run_groups(x[: groups * size], groups)
            except InputError:  # a network may refuse so few examples; if it refuses every batch, that is an error
                self._refused.add(size)
                normalising.run(x)
                return
        self.moments.setdefault(size, []).append(moments)
        if groups == 2 and size == len(x) // 2:  # three examples have no halves
            self.halved.append(done - 1)

    def _size(self, x: Tensor, done: int) -> int | None:
        """Return the size of the smaller batches to run; None if there are enough."""
        scheduled = max(SMALL_LEAST, self.total // SMALL_SHARE, SMALL_ROWS // len(x) if x.dim() == 2 else 0)
        size = SMALL_SIZES[(done - 1) % len(SMALL_SIZES)] or len(x) // 2
        if done <= scheduled and size < len(x):
            return size
        sizes = (size for size in RECORDED_SIZES if size < len(x) and size not in self._refused)
        enough = max(LEAST_SMALL, self.total // SMALL_PART)
        ran = {size: sum(moments.shape[1] for moments in parts) for size, parts in self.moments.items()}
        return next((size for size in sizes if ran.get(size, 0) < enough), None)


@torch.inference_mode(False)
@torch.no_grad()
def check_layers(model: nn.Module, batches: MiniBatches, layers: LayerChoice) -> Tensor:
    """Refuse a network or data if no statistics can be collected, and return the two examples that were run."""
    network, _, device, dtype = _checked_copy(model, batches)
    with (
        isolated_randomness(batches.seed, device),
        restore_tensors(writable_tensors(network), running_statistics(network)),
    ):
        example = batches.form.placed(batches.first(), "train_data", device, dtype)[:2]
        try:
            _running_layers(network, example, layers)
        except InputError:
            _require_separate_examples(network, batches, device, dtype)
            raise
    return example


def _require_separate_examples(
    network: nn.Module, batches: MiniBatches, device: torch.device, dtype: torch.dtype
) -> None:
    """Refuse a network that runs on all examples at once but not on two of them, such as one of a whole graph."""
    source = batches.source
    if not isinstance(source, ArrayRows) or source.x.numel() > 2 * EXAMPLE_ELEMENTS:
        return
    try:
        call_network(network, batches.form.placed(source.x, "train_data", device, dtype).clone(), "train_data")
    except InputError:
        return
    raise NetworkError(
        f"model: it runs on all {len(source)} examples at once, but not on two of them. So it has one forward pass for "
        "all examples, like networks of a whole graph, and no batches whose statistics could be sampled. Train and "
        "predict on batches of graphs or subgraphs, or use bn.ensemble, which needs no batches."
    )


def _checked_copy(
    model: nn.Module, batches: MiniBatches
) -> tuple[nn.Module, dict[str, _BatchNorm], torch.device, torch.dtype]:
    """Return a private copy, the user's batch-norm layers, and device and dtype; refuse weights that are not finite."""
    original = unwrap(model)
    modules = require_batchnorm(original)
    device, dtype = device_of(original), dtype_of(original)
    require_finite_weights(original)
    return private_copy(original, batches.form.forward_kwargs), modules, device, dtype


def _running_layers(network: nn.Module, x: Tensor, layers: LayerChoice) -> tuple[str, ...]:
    """Return the layers to sample; a forward pass over two examples shows which run, and in which order."""
    modules = find_batchnorm(network)
    calls = called_modules(network, modules, x)
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
        mean = modules[name].running_mean
        if mean is None:
            raise NetworkError(
                f"model: batch-norm layer {name!r} has no running statistics (track_running_stats=False), so it "
                "cannot run in evaluation mode. Train with running statistics, or leave it out with layers=."
            )
        running_var = modules[name].running_var
        negative = 0 if running_var is None else int((running_var < 0).sum())
        if negative:
            raise NetworkError(
                f"model: the running variance of batch-norm layer {name!r} is negative in {negative} of "
                f"{modules[name].num_features} channels, so its outputs are NaN. Load the weights again, or recompute "
                "the running statistics with torch.optim.swa_utils.update_bn."
            )
        most = torch.finfo(torch.promote_types(mean.dtype, torch.float32)).max ** 0.5
        if bool((mean.abs() > most).any()):
            raise NetworkError(
                f"model: the running mean of batch-norm layer {name!r} is {float(mean.abs().max()):g}, but the largest "
                f"usable number is {most:g}. Load the weights again, or train with a smaller learning rate."
            )
        if f"{name}.running_mean" not in buffers or f"{name}.running_var" not in buffers:
            raise NetworkError(
                f"model: batch-norm layer {name!r} shares its running statistics with another layer, so they cannot "
                "be sampled separately. Give it its own statistics, or leave it out with layers=."
            )
    return chosen


def _require_finite(statistics: BatchStatistics) -> None:
    """Refuse statistics that are NaN or infinite, or without a logarithm; the error names the layer."""
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
        if layer.eps <= 0 and not (statistics.var[:, part] > 0).all():
            constant = int((statistics.var[:, part] <= 0).any(dim=0).sum())
            raise NetworkError(
                f"model: batch-norm layer {layer.name!r} has eps={layer.eps:g}, and the inputs of {constant} of its "
                f"{layer.channels} channels do not vary in a batch, so it divides by zero. Give the layer an eps such "
                "as 1e-5, or leave it out with layers=."
            )
