"""Summaries that are accumulated as outputs arrive, so that the outputs of all samples are never in memory together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import Likelihood
from ..predictive import Predictive, RegressionPredictive, RunningSummary, at_least_single
from .base import Passes, require_one_shape

Take = Callable[[slice, Tensor, Tensor | None], None]
"""A function of a slice of examples, their outputs under some samples, (n, rows, *out), and the samples' weights."""


def summary_of(likelihood: Likelihood, rows: int, run_parts: Callable[[Take], None]) -> Predictive:
    """Return the summary of the mixture over samples.

    Args:
        likelihood: Turns outputs into distributions of targets. If it uses the variance of the outputs across samples,
            all samples run twice: first for the variance, then for the mixture.
        rows: Number of examples.
        run_parts: Runs the samples and passes their outputs to the given function.
    """
    variance: Tensor | None = None
    if likelihood.uses_sample_variance:
        spread = RunningSummary(rows)

        def measure(part: slice, f: Tensor, weights: Tensor | None) -> None:
            finite = at_least_single(f).nan_to_num(0.0, neginf=0.0)  # logits of impossible classes are -inf
            spread.add(part, RegressionPredictive(finite, finite.new_zeros(()), weights), _total(f, weights))

        run_parts(measure)
        variance = spread.predictive().epistemic
    running = RunningSummary(rows)

    def take(part: slice, f: Tensor, weights: Tensor | None) -> None:
        part_variance = None if variance is None else variance[part]
        running.add(part, likelihood.part_predictive(f, weights, part_variance), _total(f, weights))

    run_parts(take)
    return running.predictive()


def run_passes(passes: Sequence[Passes], samples: int, x: Any, take: Take, **options: Any) -> None:
    """Run the forward passes of n samples, and pass on their outputs as they arrive.

    Args:
        passes: The passes.
        samples: The number of samples n.
        x: Inputs.
        take: Called with the outputs.
        options: Further arguments of `Executable.each`.
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
    """Return how many of the n samples use each pass; None for one each."""
    if passes.states is None:
        return torch.tensor([float(samples if passes.places is None else len(passes.places))])
    if passes.sources is None:
        return None
    return torch.bincount(passes.sources, minlength=len(next(iter(passes.states.values())))).double()


def _total(f: Tensor, weights: Tensor | None) -> float:
    return float(len(f)) if weights is None else float(weights.sum())
