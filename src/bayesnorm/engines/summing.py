"""Add up what samples say as their outputs come, so that the outputs of all samples are never there at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import Likelihood
from ..predictive import Predictive, RegressionPredictive, RunningSummary
from ..predictive.base import at_least_single
from .base import Passes, require_one_shape

Take = Callable[[slice, Tensor, Tensor | None], None]
"""A function that is given rows, outputs of them under some samples, (n, rows, *out), and the samples' weights."""


def summary_of(likelihood: Likelihood, rows: int, each: Callable[[Take], None]) -> Predictive:
    """Return the summary of the mixture over samples.

    Args:
        likelihood: Turns outputs into distributions of targets. One that listens to the outputs' variance over all
            samples has the samples made twice: for that, and then for the mixture.
        rows: How many rows there are.
        each: Makes the samples, and hands their outputs on.
    """
    variance: Tensor | None = None
    if likelihood.listens:
        spread = RunningSummary(rows)

        def measure(part: slice, f: Tensor, weights: Tensor | None) -> None:
            finite = at_least_single(f).nan_to_num(0.0, neginf=0.0)  # classes that are ruled out in every draw
            spread.add(part, RegressionPredictive(finite, finite.new_zeros(()), weights), _total(f, weights))

        each(measure)
        variance = spread.predictive().epistemic
    running = RunningSummary(rows)

    def take(part: slice, f: Tensor, weights: Tensor | None) -> None:
        known = None if variance is None else variance[part]
        running.add(part, likelihood.part_predictive(f, weights, known), _total(f, weights))

    each(take)
    return running.predictive()


def run_passes(passes: Sequence[Passes], samples: int, x: Any, take: Take, **options: Any) -> None:
    """Run all passes that n samples take, and hand on their outputs as they come.

    Args:
        passes: The passes.
        samples: n.
        x: Inputs.
        take: Is given the outputs.
        options: What `Executable.each` takes besides.
    """
    shape: torch.Size | None = None
    for one in passes:
        counts = _counts(one, samples)

        def hand_on(rows: slice, part: slice, f: Tensor, counts: Tensor | None = counts) -> None:
            nonlocal shape
            shape = shape or f.shape[2:]
            require_one_shape(shape, f.shape[2:])
            take(rows, f, None if counts is None else counts[part].to(f.device))

        one.executable.each(one.states, x, hand_on, **options)


def _counts(passes: Passes, samples: int) -> Tensor | None:
    """Return how many of n samples each pass gives; None for one each."""
    if passes.states is None:
        return torch.tensor([float(samples if passes.places is None else len(passes.places))])
    if passes.sources is None:
        return None
    return torch.bincount(passes.sources, minlength=len(next(iter(passes.states.values())))).double()


def _total(f: Tensor, weights: Tensor | None) -> float:
    return float(len(f)) if weights is None else float(weights.sum())
