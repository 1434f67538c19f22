"""Compare the statistics of new examples with those of training batches, for both `drift` and `adapt`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesnorm_runtime import Comparison, group_sizes

from ..errors import InputError, NotComparableError
from ..network import RowStatistics, equal_rows
from ..posterior import (
    AdaptedPosterior,
    BatchNormPosterior,
    CombinedPosterior,
    EnsemblePosterior,
    Posterior,
    TrainingBatches,
    coordinates,
)


def compare_with_training(posterior: BatchNormPosterior, x: Any) -> Comparison:
    """Run new examples through the network in groups of about one batch, each normalised by its own statistics."""
    batches = require_batches(posterior)
    watcher = row_statistics(posterior)
    rows = watcher.input(inputs_in_memory(posterior, x))
    if len(rows) < batches.sizes[0]:
        raise NotComparableError(
            f"x has {len(rows)} example{'s' if len(rows) != 1 else ''}, but the posterior knows only how at least "
            f"{batches.sizes[0]} training examples vary. Pass more examples, or fit again with states=256."
        )
    parts, start = [], 0
    for size, groups in group_sizes(len(rows), batches.batch_size):
        parts.append(torch.stack(watcher.moments(rows[start : start + size * groups], groups)))
        start += size * groups
    mean, var = torch.cat(parts, dim=1).cpu().double()
    values = coordinates(mean, var, batches.layers)
    require_finite_statistics(values)
    return Comparison.from_statistics(batches.reference, values.numpy(), len(rows), all_alike(rows))


def require_finite_statistics(values: Tensor) -> None:
    """Raise an error if statistics of new examples are NaN or infinite."""
    if not bool(torch.isfinite(values).all()):
        raise InputError(
            "x gives NaN or infinite statistics inside the network. Check x for very large values, and scale it as in "
            "training."
        )


def all_alike(rows: Tensor) -> bool:
    """Return whether there are several examples and all are the same."""
    # The second example usually differs from the first; then the others need not be compared.
    return len(rows) > 1 and equal_rows(rows[1:2], rows[:1]) and equal_rows(rows, rows[:1])


def inputs_in_memory(posterior: Posterior, x: Any) -> Any:
    """Return inputs of any kind as tensors, so that several networks can use them."""
    return x if isinstance(x, Tensor) and x.is_floating_point() else posterior.executable.input(x)


def compare_with_present(posterior: BatchNormPosterior, x: Any) -> Comparison:
    """Compare with the posterior as it is now: if it was adapted, with the data that it was adapted to."""
    comparison = compare_with_training(posterior, x)
    if not isinstance(posterior, AdaptedPosterior):
        return comparison
    shift = posterior.adaptation.arrays
    return comparison.from_present(posterior.moved.double().cpu().numpy(), shift.strength, shift.noise)


def over_statistics(posterior: Posterior) -> list[BatchNormPosterior]:
    """Return the posteriors over batch statistics that a posterior contains, or raise an error if it has none."""
    if isinstance(posterior, BatchNormPosterior):
        return [posterior]
    parts: tuple[Posterior, ...] = ()
    if isinstance(posterior, EnsemblePosterior):
        parts = posterior.members
    elif isinstance(posterior, CombinedPosterior):
        parts = tuple(part for part in posterior.parts if isinstance(part, BatchNormPosterior))
    if not parts:
        raise NotComparableError(
            f"posterior is a {type(posterior).__name__}, which is not a posterior over batch statistics, so new data "
            "cannot be compared with the training data. Fit one with MCBN, GaussianBN or StochasticBN."
        )
    return [posterior_part for part in parts for posterior_part in over_statistics(part)]


def require_batches(posterior: BatchNormPosterior) -> TrainingBatches:
    """Return a posterior's record of its training batches, or raise an error if it has none."""
    if posterior.training_batches is None:
        raise NotComparableError(
            "posterior has no record of how training batches vary: it was fitted on fewer than 8 batches, or saved by "
            "an earlier version. Fit it again with states=256."
        )
    return posterior.training_batches


def row_statistics(posterior: BatchNormPosterior) -> RowStatistics:
    """Return the object that collects statistics of new examples; it is built once per posterior."""
    statistics: RowStatistics | None = posterior.__dict__.get("_row_statistics")
    if statistics is None:
        statistics = RowStatistics(
            posterior.model,
            [layer.name for layer in require_batches(posterior).layers],
            posterior.executable.forward_kwargs,
        )
        object.__setattr__(posterior, "_row_statistics", statistics)
    return statistics
