"""Expected variance reduction: how much the epistemic variance at reference inputs falls if an example is labelled.

With Gaussian outputs f and noise variance S, the reduction does not depend on the label (Cohn, Ghahramani and Jordan
1996):

    reduction by example i  =  mean over reference outputs r of  c_ri (C_ii + S_i)^-1 c_ir,

where C and c are covariances over the samples. The covariance after a label has a closed form too, so a batch can be
built greedily. Everything is computed in the space of the n samples: with a_i the samples' deviations at example i,
c_ij = a_i^T M a_j, and M is the identity before any label. No matrix over pairs of examples is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..metrics import check_regression, wide
from ..predictive import Predictive, RegressionPredictive, weighted_mean
from .acquisitions import GreedyBatch, finite_noise, require_count

# The largest memory, in bytes, for the matrices of a block of examples.
BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class VarianceReduction:
    """Greedy expected variance reduction as an acquisition; the default reference is the candidates."""

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        return greedy_variance_reduction(predictive, count, reference).rows


def variance_reduction(predictive: Predictive, reference: Predictive | None = None) -> Tensor:
    """Return the expected reduction of the mean epistemic variance over a reference set by each label, (batch,).

    It is in squared target units and never negative. It is exact if outputs and noise are Gaussian (a linear model, a
    Gaussian process). Otherwise it is that of the best linear update of the samples.

    Args:
        predictive: Regression predictions of the candidates, by Monte Carlo samples.
        reference: Predictions of the reference inputs by the *same* samples (same posterior, engine and seed); None
            uses the candidates.
    """
    samples, wanted = _checked(predictive, reference)
    return samples.gains(torch.eye(len(wanted)).to(wanted), wanted)


def greedy_variance_reduction(predictive: Predictive, count: int, reference: Predictive | None = None) -> GreedyBatch:
    """Choose greedily the examples that together reduce the mean epistemic variance of the reference most.

    Args:
        predictive: Predictions of the candidates; see `variance_reduction`.
        count: Number of examples to choose.
        reference: Predictions of the reference inputs; see `variance_reduction`.
    """
    samples, wanted = _checked(predictive, reference)
    count = require_count("count", count, len(samples.noise), "candidates")
    inner = torch.eye(len(wanted)).to(wanted)
    rows: list[int] = []
    gains: list[Tensor] = []
    for _ in range(count):
        reductions = samples.gains(inner, wanted)
        reductions[rows] = -torch.inf
        rows.append(int(reductions.argmax()))
        gains.append(reductions[rows[-1]])
        inner = samples.labelled(inner, rows[-1])
    return GreedyBatch(torch.tensor(rows), torch.stack(gains))


@dataclass(frozen=True)
class _CandidateSamples:
    """Outputs of the candidates under the posterior's samples.

    Args:
        deviations: Deviation of each sample from the mean, times the root of its weight, (n, examples, outputs).
        noise: Aleatoric variance of each output, (examples, outputs).
    """

    deviations: Tensor
    noise: Tensor

    def gains(self, inner: Tensor, wanted: Tensor) -> Tensor:
        """Return the reduction by each example, (examples,).

        Args:
            inner: The matrix M of the covariances a^T M a, (n, n).
            wanted: Mean of a a^T over reference outputs, (n, n).
        """
        n, _, outputs = self.deviations.shape
        side = min(outputs, n)
        step = max(1, BLOCK_BYTES // (8 * (3 * side * side + 3 * n * outputs)))
        goal = inner @ wanted @ inner
        reductions = []
        for a, noise in zip(self.deviations.split(step, 1), self.noise.split(step), strict=True):
            a = a.movedim(1, 0)
            if outputs <= n:
                covariance = a.mT @ (inner @ a) + torch.diag_embed(noise)
                change = torch.linalg.solve(covariance, a.mT @ (goal @ a))
            else:  # the same by the matrix inversion lemma, with an (n, n) system
                information = (a / noise[:, None]) @ a.mT
                change = torch.linalg.solve(torch.eye(n).to(a) + information @ inner, information @ goal)
            reductions.append(change.diagonal(dim1=1, dim2=2).sum(1))
        return torch.cat(reductions).clamp_min(0)

    def labelled(self, inner: Tensor, row: int) -> Tensor:
        """Return `inner` after an example is labelled."""
        a, noise = self.deviations[:, row], self.noise[row]
        if a.shape[1] > len(a):
            return torch.linalg.solve(torch.eye(len(a)).to(a) + inner @ (a / noise) @ a.T, inner)
        covariance = inner @ a
        return inner - covariance @ torch.linalg.solve(a.T @ covariance + torch.diag(noise), covariance.T)


def _checked(predictive: Any, reference: Any) -> tuple[_CandidateSamples, Tensor]:
    """Return the candidates' samples, and the mean over reference outputs of a a^T, (n, n)."""
    candidates = _deviations("predictive", predictive)
    others = candidates if reference is None else _deviations("reference", reference)
    if reference is not None and not torch.equal(reference.weights, predictive.weights):
        raise InputError(
            f"reference has {len(others)} samples and predictive has {len(candidates)}, or their weights differ. "
            "Predict both with the same posterior, engine and seed."
        )
    noise = wide(finite_noise(predictive)).reshape(candidates.shape[1:])
    # Without noise, a second label of an example would divide by zero.
    least = torch.finfo(noise.dtype).eps * candidates.square().sum(0).max() + torch.finfo(noise.dtype).tiny
    flat = others.flatten(1)
    return _CandidateSamples(candidates, noise.clamp_min(least)), flat @ flat.T / flat.shape[1]


def _deviations(name: str, predictive: Any) -> Tensor:
    """Return the samples' deviations from their mean, times the root of each weight, (n, examples, outputs)."""
    check_regression(predictive)
    assert isinstance(predictive, RegressionPredictive)
    if len(predictive.loc) < 2:
        raise InputError(
            f"{name} has {len(predictive.loc)} sample, but a covariance needs at least 2. Predict with "
            "MonteCarlo(samples=64)."
        )
    loc = wide(predictive.loc)
    weights = wide(predictive.weights)
    return (loc - weighted_mean(loc, weights)).flatten(1).mul(weights.sqrt()[:, None]).view(len(loc), loc.shape[1], -1)
