"""Hold new rows against training batches: one pass, from which both drift and adapting follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, NotComparableError
from ..network import RowStatistics
from ..posterior import (
    AdaptedPosterior,
    BatchNormPosterior,
    CombinedPosterior,
    EnsemblePosterior,
    Posterior,
    TrainingBatches,
    coordinates,
)


@dataclass(frozen=True)
class Comparison:
    """How the statistics of n new rows differ from those of training rows; 2C coordinates, 2L parts.

    Args:
        batches: The training batches.
        rows: n.
        size: Rows in each of the groups that were normalised apart, on average.
        groups: How many groups there were.
        shift: By how much the mean of their statistics lies off the expected one, (2C,).
        noise: The variance that this has for training rows, (2C,).
        known: Which parts vary at all at this size, (2L,).
        alike: Whether all rows are the same.
    """

    batches: TrainingBatches
    rows: int
    size: float
    groups: int
    shift: Tensor
    noise: Tensor
    known: Tensor
    alike: bool

    @property
    def standardised(self) -> Tensor:
        """Squared deviations in units of their variance, (2C,); 1 on average for training rows."""
        return self.shift.square() / self.noise


def compare(posterior: BatchNormPosterior, x: Any) -> Comparison:
    """Run new rows through a posterior's network, its layers normalising by them in groups of about a batch."""
    batches = require_batches(posterior)
    watcher = _row_statistics(posterior)
    rows = watcher.input(x)
    groups = max(1, round(len(rows) / batches.batch_size))
    fewer, more = divmod(len(rows), groups)  # so many groups have one row more than the others
    parts = []
    for count, given in ((fewer + 1, rows[: more * (fewer + 1)]), (fewer, rows[more * (fewer + 1) :])):
        if len(given):
            parts.append(torch.stack(watcher.of(given, len(given) // count)))
    mean, var = torch.cat(parts, dim=1).cpu().double()
    found = coordinates(mean, var, batches.layers)
    if not bool(torch.isfinite(found).all()):
        raise InputError("x: its statistics inside the network are NaN or infinite; rows of ordinary size would work.")
    size = len(rows) / groups
    expected = batches.expected(size, groups)
    # Most rows differ from the second on: then all of them need not be looked at.
    alike = torch.equal(rows[:1], rows[1:2]) and bool((rows == rows[:1]).all())
    shift = found.mean(0) - expected.center
    return Comparison(batches, len(rows), size, groups, shift, expected.variance, expected.known, alike)


def compare_with_present(posterior: BatchNormPosterior, x: Any) -> Comparison:
    """Compare with what a posterior stands for now: where it was adapted, with the rows it was adapted to."""
    found = compare(posterior, x)
    if not isinstance(posterior, AdaptedPosterior):
        return found
    strength = found.batches.parts.spread(posterior.adaptation.strength)
    left = strength * posterior.adaptation.noise
    shift = found.shift - posterior.moved.to(found.shift)
    return replace(found, shift=shift, noise=found.noise + left)


def over_statistics(posterior: Posterior) -> list[BatchNormPosterior]:
    """Return the posteriors over batch statistics that a posterior consists of, or refuse one without."""
    if isinstance(posterior, BatchNormPosterior):
        return [posterior]
    parts: tuple[Posterior, ...] = ()
    if isinstance(posterior, EnsemblePosterior):
        parts = posterior.members
    elif isinstance(posterior, CombinedPosterior):
        parts = tuple(part for part in posterior.parts if isinstance(part, BatchNormPosterior))
    if not parts:
        raise NotComparableError(
            f"posterior: {type(posterior).__name__} is not over batch statistics, so that new rows cannot be held "
            "against those of training; one of MCBN, GaussianBN or StochasticBN would work."
        )
    return [found for part in parts for found in over_statistics(part)]


def require_batches(posterior: BatchNormPosterior) -> TrainingBatches:
    """Return what a posterior knows of training batches, or refuse one that knows too little."""
    if posterior.training_batches is None:
        raise NotComparableError(
            "posterior: does not know how training batches vary, because it was fitted on fewer than 8 of them or "
            "written by an earlier version; fitting again with states=256 would work."
        )
    return posterior.training_batches


def _row_statistics(posterior: BatchNormPosterior) -> RowStatistics:
    """Return what takes statistics of new rows for a posterior; made once, then kept with it."""
    kept: RowStatistics | None = posterior.__dict__.get("_row_statistics")
    if kept is None:
        kept = RowStatistics(posterior.model, [layer.name for layer in require_batches(posterior).layers])
        object.__setattr__(posterior, "_row_statistics", kept)
    return kept
